"""References to payloads as older playbooks read them: `ref`, `kind` and `meta`, made of the fields a reference has.

They are found when a template asks for them and stand nowhere else, so a reference is recorded as it always was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

REFERENCE_FIELDS: Final = frozenset({"ref", "kind", "meta"})


def reference_field(value: Any, name: Any) -> Any:
    """Return one of these fields of a reference; None if the value is no reference, or has no such field."""
    if not isinstance(name, str) or name not in REFERENCE_FIELDS or not _is_reference(value):
        return None
    if name == "ref":
        return value["uri"]
    return "result_ref" if name == "kind" else _meta(value)


def _is_reference(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    uri, sha256 = value.get("uri"), value.get("sha256")
    return isinstance(uri, str) and uri.startswith("noetl://") and uri.endswith(f"/payloads/sha256/{sha256}")


def _meta(ref: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "content_type": ref.get("media_type"),
        "media_type": ref.get("media_type"),
        "bytes": ref.get("bytes"),
        "sha256": ref["sha256"],
        "schema_digest": ref.get("schema_digest"),
        "row_count": ref.get("rows"),
        "compression": "zstd" if str(ref.get("encoding")).startswith("zstd") else None,
    }
