"""A result as templates see it: `step.rows` and `step.status` find its fields and what is known of it, `step` alone is
the result itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl.playbook.result_fields import repeated_field

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
