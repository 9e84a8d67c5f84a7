"""Conditions on rows: `column = value AND …` goes in, what is asked of which column comes out. Anything else is refused.

The text is only read as a tree; what a person wrote as a value never becomes part of a query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noetl.errors import InputError
from noetl.model.dataset import Field, FileEntry

_COMPARED: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}
_TURNED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_LONGEST: Final = 10_000
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_HINT: Final = "write it like: order_id = 7 AND region IN ('north', 'south')"


class Condition(msgspec.Struct, frozen=True):
    """What is asked of a column: one comparison with values."""

    column: str
    operator: str
    """One of = <> < <= > >= IN BETWEEN, IS NULL or IS NOT NULL."""
    values: tuple[str, ...] = ()
    """As text; whoever compares reads them as the column's type."""


def read_conditions(text: str, schema: Sequence[Field]) -> tuple[Condition, ...]:
    """Read conditions on columns of a schema."""
    if len(text) > _LONGEST:
        raise InputError(f"the condition has {len(text)} characters, and {_LONGEST} are allowed", hint=_HINT)
    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE {text}", dialect="duckdb")
    except SqlglotError as problem:
        raise InputError("the condition cannot be read", hint=_HINT) from problem
    except RecursionError:
        raise InputError("the condition is nested too deeply", hint=_HINT) from None
    where = tree.args.get("where")
    extra = {name for name, value in tree.args.items() if value and name not in ("where", "expressions", "kind")}
    if not isinstance(tree, exp.Select) or where is None or extra:
        raise _refused("anything but conditions joined by AND")
    parts = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    return tuple(_condition(_bare(part), {one.name.lower(): one.name for one in schema}) for part in parts)


def may_hold(entry: FileEntry, conditions: Sequence[Condition], schema: Sequence[Field]) -> bool:
    """Tell by its statistics whether a file can have such rows."""
    types = {one.name: one.type for one in schema}
    return entry.rows > 0 and all(_possible(one, entry, types.get(one.column, "")) for one in conditions)


def _possible(one: Condition, entry: FileEntry, kind: str) -> bool:
    stats = entry.stats.get(one.column, {})
    if one.operator == "IS NULL":
        return bool(stats.get("nulls") != 0)
    if "min" not in stats or "max" not in stats:
        return True
    values = [_like(value, kind) for value in one.values]
    low, high = stats["min"], stats["max"]
    if any(value is None or type(value) is not type(low) for value in values):
        return True
    match one.operator:
        case "=" | "IN":
            return any(bool(low <= value <= high) for value in values)
        case "<":
            return bool(low < values[0])
        case "<=":
            return bool(low <= values[0])
        case ">":
            return bool(high > values[0])
        case ">=":
            return bool(high >= values[0])
        case "BETWEEN":
            return bool(high >= values[0] and low <= values[1])
    return True


def _like(text: str, kind: str) -> Any:
    """Return a value as statistics spell it, where that is told exactly."""
    if kind == "string" or (kind == "date" and _DAY.fullmatch(text)):
        return text
    return int(text) if kind in _WHOLE and re.fullmatch(r"-?\d{1,18}", text) else None


def _condition(node: exp.Expr, columns: Mapping[str, str]) -> Condition:
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return Condition(_column(node.this, columns), "IS NULL")
    if isinstance(node, exp.Not) and isinstance(_bare(node.this), exp.Is):
        inner = _condition(_bare(node.this), columns)
        return Condition(inner.column, "IS NOT NULL")
    if isinstance(node, exp.In) and not node.args.get("query") and not node.args.get("unnest") and node.expressions:
        return Condition(_column(node.this, columns), "IN", tuple(map(_value, node.expressions)))
    if isinstance(node, exp.Between):
        bounds = (_value(node.args["low"]), _value(node.args["high"]))
        return Condition(_column(node.this, columns), "BETWEEN", bounds)
    spelled = _COMPARED.get(type(node))
    if spelled is None:
        raise _refused(node.key.upper())
    left, right = _bare(node.this), _bare(node.expression)
    if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
        left, right, spelled = right, left, _TURNED.get(spelled, spelled)
    return Condition(_column(left, columns), spelled, (_value(right),))


def _column(node: exp.Expr, columns: Mapping[str, str]) -> str:
    node = _bare(node)
    if not isinstance(node, exp.Column) or len(node.parts) != 1 or isinstance(node.this, exp.Star):
        raise _refused(f"{node.key.upper()} in place of a column")
    found = columns.get(node.name.lower())
    if found is None:
        near = get_close_matches(node.name, list(columns.values()), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(columns.values()) or 'none yet'}"
        raise InputError(f"there is no column {node.name!r}", hint=hint)
    return found


def _value(node: exp.Expr) -> str:
    node = _bare(node)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return f"-{node.this.name}"
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
        # DATE '2026-01-01' reads as a cast; the column's own type is what counts.
        return str(node.this.name)
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if not isinstance(node, exp.Literal):
        raise _refused(f"{node.key.upper()} in place of a value")
    return str(node.name)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _refused(what: str) -> InputError:
    return InputError(f"a condition compares columns with values, and this has {what}", hint=_HINT)
