"""Filters of a query turned into conditions for PostgreSQL: what Spark asks goes in, what can be asked there comes out.

A condition may let rows through that the filter refuses, never the other way round: Spark applies every filter again,
because rows from archives and rows in old schemas have not met the condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import datasource as spark

from noetl.model.event import time_text
from noetl.model.mark import MAX_POSITION
from noetl.model.stream import SHARD_COUNT
from noetl.spark.source.columns import JSON, POSTGRES_TYPES
from noetl.spark.source.statement import Condition

_COMPARED: Final = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_SEARCHED: Final = {
    spark.StringStartsWith: "starts_with({column}, {{0}})",
    spark.StringEndsWith: "right({column}, length({{0}})) = {{0}}",
    spark.StringContains: "strpos({column}, {{0}}) > 0",
}
_MOST_LISTED: Final = 10_000


@dataclass(frozen=True)
class Narrowed:
    """What filters leave of the ledger to plan for."""

    conditions: tuple[Condition, ...] = ()
    shards: frozenset[int] = frozenset(range(SHARD_COUNT))
    first: int = 1
    last: int = MAX_POSITION
    executions: frozenset[int] | None = None
    """The executions asked for, where filters name them."""


def narrowed(filters: Sequence[spark.Filter]) -> Narrowed:
    """Return what filters leave to read."""
    found = Narrowed(tuple(conditions(filters)))
    for one in filters:
        name, values = _column(one), _numbers(one)
        if name == "shard" and values is not None:
            found = replace(found, shards=found.shards & values)
        elif name == "execution_id" and values is not None:
            found = replace(found, executions=values if found.executions is None else found.executions & values)
        elif name == "position":
            found = _bounded(found, one)
    return found


def _numbers(one: spark.Filter) -> frozenset[int] | None:
    """Return the numbers a filter lets through, where it names them."""
    values = one.value if isinstance(one, spark.In) else (getattr(one, "value", None),)
    if not isinstance(one, spark.EqualTo | spark.EqualNullSafe | spark.In):
        return None
    return frozenset(value for value in values if type(value) is int)


def _bounded(found: Narrowed, one: spark.Filter) -> Narrowed:
    value = getattr(one, "value", None)
    if type(value) is not int:
        return found
    if isinstance(one, spark.EqualTo | spark.EqualNullSafe):
        return replace(found, first=max(found.first, value), last=min(found.last, value))
    if isinstance(one, spark.GreaterThan | spark.GreaterThanOrEqual):
        return replace(found, first=max(found.first, value + isinstance(one, spark.GreaterThan)))
    if isinstance(one, spark.LessThan | spark.LessThanOrEqual):
        return replace(found, last=min(found.last, value - isinstance(one, spark.LessThan)))
    return found


def conditions(filters: Iterable[spark.Filter]) -> list[Condition]:
    """Return the conditions that all of the filters come to; a filter that PostgreSQL cannot be asked gives none."""
    return [found for one in filters if (found := condition(one)) is not None]


def condition(one: spark.Filter) -> Condition | None:
    """Return what a filter comes to."""
    if isinstance(one, spark.Not):
        # Whether a null differs from a value is the one question whose negation a condition would answer otherwise.
        inner = None if isinstance(one.child, spark.EqualNullSafe) else condition(one.child)
        # Where the column is null, both the filter and its negation refuse the row, here as in Spark.
        return inner and Condition(inner.column, f"NOT ({inner.text})", inner.values, inner.kinds)
    name = _column(one)
    if name is None:
        return None
    if isinstance(one, spark.IsNull):
        return Condition(name, f"{name} IS NULL")
    if isinstance(one, spark.IsNotNull):
        return Condition(name, f"{name} IS NOT NULL")
    kind = POSTGRES_TYPES[name]
    if isinstance(one, spark.In):
        values = [_value(value, kind) for value in one.value]
        if None in values or len(values) > _MOST_LISTED:
            return None
        return Condition(name, f"{_compared(name)} = ANY ({{0}})", (values,), (f"{kind}[]",))
    value = _value(getattr(one, "value", None), kind)
    if value is None:
        return None
    if type(one) in _COMPARED:
        return Condition(name, f"{_compared(name)} {_COMPARED[type(one)]} {{0}}", (value,), (kind,))
    if type(one) in _SEARCHED and kind == "text":
        return Condition(name, _SEARCHED[type(one)].format(column=_compared(name)), (value,), (kind,))
    return None


def _column(one: spark.Filter) -> str | None:
    """Return the column a filter is about, where it is one that PostgreSQL compares as Spark does."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in POSTGRES_TYPES or path[0] in JSON:
        return None
    return path[0]


def _compared(name: str) -> str:
    # Spark orders texts by their bytes, whatever the database's own order is.
    return f'{name} COLLATE "C"' if POSTGRES_TYPES[name] == "text" else name


def _value(value: Any, kind: str) -> Any:
    """Return a value as it travels, or None for one that PostgreSQL has no such type for."""
    if kind in ("bigint", "integer"):
        return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None
    if kind == "timestamptz":
        if not isinstance(value, datetime):
            return None
        return time_text(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
    return value if isinstance(value, str) and "\0" not in value else None
