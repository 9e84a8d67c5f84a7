"""A result as templates see it: `step.rows` and `step.status` find its fields and metadata, `step` alone is the result.

References to payloads also answer to the older names `ref`, `kind` and `meta`. These are computed when a template asks
for them and are never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl.language.templates.result_fields import repeated_field

NOWHERE: Final = object()
"""Stands for a name that a view does not have."""
_NONE: Final[Mapping[str, Any]] = {}


class View:
    """A value with further names: those `before` come first, then the value's own, then those `beside` it."""

    __slots__ = ("before", "beside", "value")

    def __init__(self, value: Any, *, before: Mapping[str, Any] = _NONE, beside: Mapping[str, Any] = _NONE) -> None:
        self.value = value
        self.before = before
        self.beside = beside

    def find(self, name: Any) -> Any:
        """Return what a name stands for, or `NOWHERE`."""
        if isinstance(name, str):
            if name in self.before:
                return self.before[name]
            if isinstance(self.value, Mapping):
                if name in self.value:
                    return self.value[name]
                if (made := repeated_field(self.value, name)) is not None:
                    return made
            if name in self.beside:
                return self.beside[name]
        return NOWHERE

    def get(self, name: Any, default: Any = None) -> Any:
        """Return what a name stands for, as a mapping's `get` does."""
        found = self.find(name)
        return default if found is NOWHERE else found

    def __getitem__(self, name: str) -> Any:
        found = self.find(name)
        if found is NOWHERE:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return self.find(name) is not NOWHERE

    def __bool__(self) -> bool:
        # A step that ran and gave nothing has run all the same.
        return True if self.value is None else bool(self.value)

    def __repr__(self) -> str:
        return f"View({self.value!r})"


def alone(value: Any) -> Any:
    """Return the value of a view, and anything else as it is."""
    return value.value if isinstance(value, View) else value


ENVELOPE: Final = frozenset({"status", "data", "ref", "error", "meta", "http", "pg", "py", "child"})
"""Names of `output` that tell how a task ended; any other name below it is one of the result's own."""


def output_view(output: Mapping[str, Any]) -> View:
    """Return an outcome as `output` shows it: its own names come first, those of the result after them."""
    return View(output.get("data"), before=output)


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
