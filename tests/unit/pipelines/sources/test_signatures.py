"""Signatures of what is sent to webhooks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import pytest

from noetl.pipelines.sources.signatures import SignatureStyle, Unsigned, signature_of, signed

SECRET, OTHER = b"whsec-1", b"whsec-2"
BODY = b'{"id": 1}'
NOW = 1_800_000_000.0


def headers(secret: bytes = SECRET, *, ago: int = 0, delivery: str | None = None, body: bytes = BODY) -> dict[str, str]:
    """Return the headers of a request that was signed so many seconds ago."""
    found = {"x-noetl-signature": signature_of(secret, body, seconds=int(NOW) - ago, delivery=delivery)}
    return found if delivery is None else {**found, "x-noetl-delivery": delivery}


def taken(
    given: Mapping[str, str], *, style: SignatureStyle = "noetl", body: bytes = BODY, now: float = NOW
) -> str | None:
    return signed(style, given, body, [SECRET], now=now)


def test_the_signature_is_what_a_sender_computes_by_hand() -> None:
    digest = hmac.new(SECRET, b"1800000000." + BODY, hashlib.sha256).hexdigest()
    assert headers()["x-noetl-signature"] == f"t=1800000000,v1={digest}"
    named = hmac.new(SECRET, b"1800000000.order-7." + BODY, hashlib.sha256).hexdigest()
    assert headers(delivery="order-7")["x-noetl-signature"] == f"t=1800000000,v1={named}"


def test_what_is_sent_again_is_known_by_the_same() -> None:
    """INV-68."""
    assert taken(headers()) == taken(headers())
    assert taken(headers()) != taken(headers(ago=1))
    assert taken(headers(delivery="a")) == taken(headers(delivery="a", ago=60)), "the sender's own id comes first"
    assert taken(headers(delivery="a")) != taken(headers(delivery="b"))


def test_any_of_several_signatures_and_secrets_is_enough() -> None:
    first, second = headers(OTHER)["x-noetl-signature"], headers()["x-noetl-signature"]
    assert taken({"x-noetl-signature": f"{first},{second.partition(',')[2]}"})
    assert signed("noetl", headers(OTHER), BODY, [SECRET, OTHER], now=NOW)


REFUSED: list[tuple[str, dict[str, str], bytes]] = [
    ("no signature", {}, BODY),
    ("another's secret", headers(OTHER), BODY),
    ("another body", headers(), b'{"id": 2}'),
    ("an old one", headers(ago=301), BODY),
    ("one from the future", headers(ago=-301), BODY),
    ("another time", {"x-noetl-signature": headers()["x-noetl-signature"].replace("1800000000", "1800000001")}, BODY),
    ("another delivery", {**headers(delivery="a"), "x-noetl-delivery": "b"}, BODY),
    ("a delivery that nobody signed", {**headers(), "x-noetl-delivery": "b"}, BODY),
    ("no delivery where one was signed", {"x-noetl-signature": headers(delivery="a")["x-noetl-signature"]}, BODY),
    ("a delivery with a dot", {**headers(), "x-noetl-delivery": "a.b"}, BODY),
    ("no time", {"x-noetl-signature": headers()["x-noetl-signature"].partition(",")[2]}, BODY),
    ("a time that is none", {"x-noetl-signature": "t=now,v1=00"}, BODY),
    ("letters of elsewhere", {"x-noetl-signature": "t=1800000000,v1=ä"}, BODY),
    ("github's way", {"x-hub-signature-256": f"sha256={hmac.new(SECRET, BODY, 'sha256').hexdigest()}"}, BODY),
]  # fmt: skip


@pytest.mark.parametrize(("given", "body"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_request_that_is_not_signed_well_is_refused(given: dict[str, str], body: bytes) -> None:
    """INV-68."""
    with pytest.raises(Unsigned):
        taken(given, body=body)


def test_the_way_of_github_is_taken_where_it_is_asked_for() -> None:
    """INV-68."""
    good = {"x-hub-signature-256": f"sha256={hmac.new(SECRET, BODY, 'sha256').hexdigest()}", "x-github-delivery": "1"}
    known_by = taken(good, style="github")
    assert known_by == taken({**good, "x-github-delivery": "2"}, style="github"), "nobody signed that header"
    for bad in ({}, {"x-hub-signature-256": "sha256=00"}, headers()):
        with pytest.raises(Unsigned):
            taken(bad, style="github")


def test_without_signatures_a_delivery_is_known_by_what_its_sender_says() -> None:
    assert taken({}, style="none") is None
    assert taken({"x-noetl-delivery": "a"}, style="none") == taken({"x-noetl-delivery": "a"}, style="none")
