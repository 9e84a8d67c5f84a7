"""References in templates: the fields older playbooks read are found in them, and stand nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import TemplateFailed
from noetl.language.templates.template import compiled
from noetl.model.payload_ref import payload_uri

DIGEST = "ab" * 32
REF = {
    "uri": payload_uri("acme", "sales", DIGEST), "sha256": DIGEST, "media_type": "application/json", "bytes": 5,
    "stored_sha256": "cd" * 32, "encoding": "zstd+aes256gcm", "rows": 2,
}  # fmt: skip


def rendered(source: str, ref: Any = REF) -> Any:
    return compiled(source).render({"big": {"_ref": ref, "data": None}})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("ref", REF["uri"]),
        ("kind", "result_ref"),
        ("meta.content_type", "application/json"),
        ("meta.media_type", "application/json"),
        ("meta.bytes", 5),
        ("meta.sha256", DIGEST),
        ("meta.row_count", 2),
        ("meta.schema_digest", None),
        ("meta.compression", "zstd"),
        ("bytes", 5),
    ],
)
def test_a_reference_has_the_fields_that_playbooks_read(path: str, value: Any) -> None:
    first, _, last = path.partition(".")
    assert rendered(f"{{{{ big._ref.{path} }}}}") == value
    assert rendered(f"{{{{ big['_ref']['{first}']{f'.{last}' if last else ''} }}}}") == value
    # The same by Jinja itself, which everyday expressions are not left to.
    assert rendered(f"{{% set ref = big._ref %}}{{{{ ref.{path} }}}}") == str(value)


def test_the_reference_itself_stays_what_is_recorded() -> None:
    assert rendered("{{ big._ref }}") == REF
    assert rendered("{{ big._ref | list }}") == list(REF)
    assert rendered("{{ 'ref' in big._ref }}") is False


def test_a_field_of_its_own_comes_first() -> None:
    assert rendered("{{ big._ref.kind }}", {**REF, "kind": "temp_ref"}) == "temp_ref"


@pytest.mark.parametrize(
    "value",
    [
        {"uri": "https://example.org/x", "sha256": DIGEST},
        {"uri": payload_uri("acme", "sales", DIGEST), "sha256": "00" * 32},
        {"uri": payload_uri("acme", "sales", DIGEST)},
        {"uri": 7, "sha256": 7},
        {},
        None,
    ],
)
@pytest.mark.parametrize("source", ["{{ big._ref.ref }}", "{{ big._ref['kind'] }}"])
def test_what_is_no_reference_has_none_of_them(source: str, value: Any) -> None:
    with pytest.raises(TemplateFailed, match="undefined"):
        rendered(source, value)


@pytest.mark.parametrize("name", ["store", "scope", "expires_at", "mate"])
def test_what_nobody_knows_of_a_reference_is_undefined(name: str) -> None:
    with pytest.raises(TemplateFailed, match=rf"'big\._ref\.{name}' is undefined"):
        rendered(f"{{{{ big._ref.{name} }}}}")
