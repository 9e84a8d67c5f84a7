"""Entries of tools' results that repeat what stands beside them: found when somebody asks, and recorded nowhere.

`command_<n>` of the last statement of a SQL task is its rows and counts once more, and `body` of an HTTP answer is its
`data`. Loaded by path in interpreters that may lack NoETL, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    from typing import Any

_STATEMENT = "command_"
_OF_STATEMENTS = ("rows", "row_count", "columns", "statement_count")
_OF_ANSWERS = ("status_code", "headers", "data")


def repeated_field(value: Any, name: Any) -> Any:
    """Return such an entry of a result; None if the value is no result of that kind, or has none of that name."""
    if not isinstance(name, str) or not isinstance(value, dict):
        return None
    if name == "body":
        return value["data"] if _has(value, _OF_ANSWERS) else None
    if not name.startswith(_STATEMENT) or not _has(value, _OF_STATEMENTS):
        return None
    if name != f"{_STATEMENT}{value['statement_count'] - 1}":
        return None
    last = {key: value[key] for key in ("rows", "row_count", "columns")}
    return {**last, "status": value.get("status", "ok")}


def may_repeat(value: Any) -> bool:
    """Tell whether a value is a result with such entries."""
    return isinstance(value, dict) and (_has(value, _OF_STATEMENTS) or _has(value, _OF_ANSWERS))


def _has(value: dict[str, Any], names: tuple[str, ...]) -> bool:
    return all(name in value for name in names)
