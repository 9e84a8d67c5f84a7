"""Locators: every form is read, printed and read back, and a wrong one says where it is wrong."""

from __future__ import annotations

import pytest

from noetl.errors import LocatorInvalid
from noetl.model.locator import (
    Locator,
    parse_locator,
)

DIGEST = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
ORG = "noetl://tenant/acme/org/care-network"
GLOBAL = f"{ORG}/cluster/prod-1/region/global"


@pytest.mark.parametrize(
    ("text", "locator"),
    [
        ("noetl://tenant/acme", Locator("acme")),
        (ORG, Locator("acme", "care-network")),
        (
            f"{ORG}/cluster/prod-1/region/us-central1/zone/us-central1-a/node/gke-noetl-pool-a-7b/process/1/worker/cpu-01",
            Locator(
                "acme",
                "care-network",
                "prod-1",
                "us-central1",
                "us-central1-a",
                "gke-noetl-pool-a-7b",
                "1",
                kind="worker",
                path=("cpu-01",),
            ),
        ),
        (
            f"{GLOBAL}/none/none/none/stream/events/987654321/7",
            Locator(
                "acme",
                "care-network",
                "prod-1",
                "global",
                kind="stream",
                path=("events", "987654321", "7"),
            ),
        ),
        (f"{ORG}/payloads/sha256/{DIGEST}", Locator("acme", "care-network", kind="payloads", path=("sha256", DIGEST))),
        (f"{ORG}/execution/987654321", Locator("acme", "care-network", kind="execution", path=("987654321",))),
        (f"{ORG}/cluster/prod-1/node/n-7", Locator("acme", "care-network", "prod-1", node="n-7")),
        (
            f"{ORG}/cluster/prod-1/worker/cpu-01",
            Locator("acme", "care-network", "prod-1", kind="worker", path=("cpu-01",)),
        ),
        (f"{ORG}/worker/cpu-01", Locator("acme", "care-network", kind="worker", path=("cpu-01",))),
        (GLOBAL, Locator("acme", "care-network", "prod-1", "global")),
        (f"{GLOBAL}/node/n-7", Locator("acme", "care-network", "prod-1", "global", node="n-7")),
        (
            f"{GLOBAL}/none/node/n-7/none/cache/9/stage/none",
            Locator("acme", "care-network", "prod-1", "global", node="n-7", kind="cache", path=("9", "stage", "none")),
        ),
        (f"{ORG}/dataset/patients", Locator("acme", "care-network", kind="dataset", path=("patients",))),
        (f"{ORG}/dag/nightly/3", Locator("acme", "care-network", kind="dag", path=("nightly", "3"))),
        (f"{ORG}/lease/frame/9", Locator("acme", "care-network", kind="lease", path=("frame", "9"))),
        (f"{ORG}/frame/9", Locator("acme", "care-network", kind="frame", path=("9",))),
        (f"{ORG}/projection/loop/15", Locator("acme", "care-network", kind="projection", path=("loop", "15"))),
        (f"{ORG}/projector/15", Locator("acme", "care-network", kind="projector", path=("15",))),
        (f"{ORG}/mcp-server/fhir", Locator("acme", "care-network", kind="mcp-server", path=("fhir",))),
        ("noetl://tenant/none/org/cluster", Locator("none", "cluster")),
        (
            f"{ORG}/cluster/none/zone/zone/task/none",
            Locator("acme", "care-network", "none", zone="zone", kind="task", path=("none",)),
        ),
        ("noetl://tenant/a%2Fb/org/50%25%20off", Locator("a/b", "50% off")),
        ("noetl://tenant/m%C3%BCller%00%F0%9F%98%80", Locator("müller\x00😀")),
        (
            f"{ORG}/dataset/a:b@c!$&'()*+,;=-._~",
            Locator("acme", "care-network", kind="dataset", path=("a:b@c!$&'()*+,;=-._~",)),
        ),
    ],
)
def test_a_locator_is_read_and_printed_as_given(text: str, locator: Locator) -> None:
    assert parse_locator(text) == locator
    assert str(locator) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (f"{GLOBAL}/stream/events/1/7", f"{GLOBAL}/none/none/none/stream/events/1/7"),
        (f"{GLOBAL}/none/none/none", GLOBAL),
        (f"{ORG}/cluster/c/none/none/none/none/worker/w", f"{ORG}/cluster/c/worker/w"),
        (f"{ORG}/cluster/c/node/n/none/worker/w", f"{ORG}/cluster/c/node/n/worker/w"),
        ("noetl://tenant/%61cme/org/m%c3%bc", "noetl://tenant/acme/org/m%C3%BC"),
    ],
)
def test_other_spellings_of_a_locator_print_the_one_way(text: str, canonical: str) -> None:
    assert str(parse_locator(text)) == canonical
    assert parse_locator(text) == parse_locator(canonical)


def test_the_locator_of_a_payload_gives_its_digest() -> None:
    assert Locator("acme", "care-network", kind="payloads", path=("sha256", DIGEST)).sha256 == DIGEST
    assert Locator("acme").sha256 is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^'' does not start with noetl://"),
        ("http://tenant/acme", r"does not start with noetl://"),
        ("NOETL://tenant/acme", r"does not start with noetl://"),
        ("noetl://", r"^segment 1 of the locator: a name is empty"),
        ("noetl://acme", r"^segment 1 of the locator: expected 'tenant', found 'acme'"),
        ("noetl://tenant", r"^segment 1 of the locator: 'tenant' is not followed by a name"),
        ("noetl://tenant/", r"^segment 2 of the locator: a name is empty; look for a doubled or trailing slash"),
        ("noetl://tenant/acme/worker/1", r"^segment 3 of the locator: expected 'org', found 'worker'"),
        ("noetl://tenant/acme/org", r"^segment 3 of the locator: 'org' is not followed by a name"),
        (f"{ORG}//x", r"^segment 5 of the locator: a name is empty"),
        (f"{ORG}/worker", r"^segment 5 of the locator: the kind 'worker' is not followed by an id"),
        (f"{ORG}/Worker/1", r"^segment 5 of the locator: 'Worker' is not a kind: use a lower-case word"),
        (f"{ORG}/../x", r"^segment 5 of the locator: '..' is not a name"),
        (f"{ORG}/dataset/%2E", r"^segment 6 of the locator: '.' is not a name"),
        (
            f"{ORG}/node/n-7",
            r"^segment 5 of the locator: 'node' does not belong there; the order is tenant, org, cluster",
        ),
        (f"{ORG}/none/none/x", r"^segment 5 of the locator: 'none' does not belong there"),
        (f"{ORG}/cluster/c/zone/z/region/r", r"^segment 9 of the locator: 'region' does not belong there"),
        (f"{ORG}/cluster/c/cluster/d", r"^segment 7 of the locator: 'cluster' does not belong there"),
        (f"{ORG}/cluster/c/none/none/none/none/none/x/y", r"^segment 11 of the locator: 'none' does not belong"),
        (f"{ORG}/cluster/c/zone", r"^segment 7 of the locator: 'zone' is not followed by a name"),
        (f"{ORG}/dataset/a b", r"^segment 6 of the locator: ' ' in 'a b' must be percent-encoded, as %20"),
        (f"{ORG}/dataset/é", r"must be percent-encoded, as %C3%A9"),
        (f"{ORG}/dataset/\ud800", r"^segment 6 of the locator: '\\ud800' in '\\ud800' must be percent-encoded"),
        (f"{ORG}/dataset/x\n", r"must be percent-encoded, as %0A"),
        (f"{ORG}/dataset/x?y", r"must be percent-encoded, as %3F"),
        (f"{ORG}/dataset/100%", r"^segment 6 of the locator: '%' in '100%' must be percent-encoded, as %25"),
        (f"{ORG}/dataset/%zz", r"'%' in '%zz' must be percent-encoded, as %25"),
        (f"{ORG}/dataset/%FF", r"^segment 6 of the locator: '%FF' is not percent-encoded UTF-8"),
        (f"{ORG}/payloads/sha256/{DIGEST[1:]}", r"^segment 5 .* payloads/sha256/<64 lower-case"),
        (f"{ORG}/payloads/sha256/{DIGEST.upper()}", r"64 lower-case"),
        (f"{ORG}/payloads/md5/{DIGEST}", r"64 lower-case"),
        (f"{ORG}/payloads/sha256/{DIGEST}/x", r"64 lower-case"),
        (f"{ORG}/cluster/c/payloads/sha256/{DIGEST}", r"^segment 7 .* a payload belongs to its organization"),
    ],
)
def test_a_wrong_locator_says_what_is_wrong_at_which_segment(text: str, message: str) -> None:
    with pytest.raises(LocatorInvalid, match=message):
        parse_locator(text)


def test_the_number_of_the_wrong_segment_is_in_the_details() -> None:
    with pytest.raises(LocatorInvalid) as caught:
        parse_locator(f"{ORG}/dataset/a b")
    assert caught.value.details == {"segment": 6}
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"tenant": ""}, "a name is empty"),
        ({"tenant": ".."}, r"'\.\.' is not a name"),
        ({"tenant": "\ud800"}, "holds a lone surrogate"),
        ({"tenant": "t", "kind": "worker", "path": ("1",)}, "a worker belongs to an organization"),
        ({"tenant": "t", "cluster": "c"}, "a cluster belongs to an organization"),
        ({"tenant": "t", "organization": "o", "zone": "z"}, "a zone belongs to a cluster"),
        ({"tenant": "t", "organization": "o", "path": ("a", "b")}, "the id 'a/b' has no kind before it"),
        ({"tenant": "t", "organization": "o", "kind": "worker"}, "the kind 'worker' is not followed by an id"),
        ({"tenant": "t", "organization": "o", "kind": "node", "path": ("1",)}, "'node' is not a kind"),
        ({"tenant": "t", "organization": "o", "kind": "none", "path": ("1",)}, "'none' is not a kind"),
        ({"tenant": "t", "organization": "o", "kind": "a/b", "path": ("1",)}, "'a/b' is not a kind"),
        ({"tenant": "t", "organization": "o", "kind": "worker", "path": ("",)}, "a name is empty"),
    ],
)
def test_parts_that_could_not_be_read_back_make_no_locator(parts: dict[str, object], message: str) -> None:
    with pytest.raises(LocatorInvalid, match=message):
        Locator(**parts)  # type: ignore[arg-type]
