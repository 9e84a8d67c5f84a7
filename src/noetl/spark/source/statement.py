"""The statement that reads events: options, a place in the ledger and filters go in, SQL and its values come out.

Scope stands in every statement, beside the row-level security of the database. Values are placeholders throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from noetl.model.event import Event, time_text
from noetl.spark.source.columns import NAMES, NEVER_UPCAST, selected
from noetl.spark.source.connections import given, given_list
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.ranges import Place, Range


@dataclass(frozen=True)
class Condition:
    """Part of a WHERE clause: `{0}`, `{1}` … stand for its values, whose SQL types are beside them."""

    column: str
    text: str
    values: tuple[Any, ...] = ()
    kinds: tuple[str, ...] = ()
    """A kind that ends with `[]` is a list."""


@dataclass
class Statement:
    """A statement under construction."""

    values: list[Any] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def add(self, condition: Condition) -> None:
        """Demand a condition."""
        self.parts.append(self.rendered(condition))

    def rendered(self, condition: Condition) -> str:
        """Return a condition as SQL, its values noted."""
        placed = []
        for value, kind in zip(condition.values, condition.kinds, strict=True):
            place = len(self.values)
            self.values.append(value)
            placed.append(given_list(place, kind.removesuffix("[]")) if kind.endswith("[]") else given(place, kind))
        return condition.text.format(*placed)


def scoped(options: SourceOptions) -> list[Condition]:
    """Return what the scope demands."""
    scope = options.scope
    if scope is None:
        return []
    return [
        Condition("tenant_id", "tenant_id = {0}", (scope.tenant_id,), ("text",)),
        Condition("organization_id", "organization_id = {0}", (scope.organization_id,), ("text",)),
    ]


def asked(options: SourceOptions) -> list[Condition]:
    """Return what the other options demand of an event."""
    found: list[Condition] = []
    if options.execution is not None:
        found.append(Condition("execution_id", "execution_id = {0}", (options.execution,), ("bigint",)))
    if options.types:
        exact = [name for name in options.types if not name.endswith("*")]
        starts = [name[:-1] for name in options.types if name.endswith("*")]
        found.append(
            Condition(
                "event_type",
                "(event_type = ANY ({0}) OR event_type ^@ ANY ({1}))",
                (exact, starts),
                ("text[]", "text[]"),
            )
        )
    if options.since is not None:
        found.append(Condition("event_time", "event_time >= {0}", (time_text(options.since),), ("timestamptz",)))
    if options.until is not None:
        found.append(Condition("event_time", "event_time < {0}", (time_text(options.until),), ("timestamptz",)))
    return found


def reading(
    options: SourceOptions, place: Place, conditions: Sequence[Condition], columns: tuple[str, ...] = NAMES
) -> tuple[str, list[Any]]:
    """Return the statement that reads a place in the order of positions, and the values it needs."""
    statement = Statement()
    for condition in (*located(place), *scoped(options), *conditions):
        statement.add(condition)
    order = "position" if isinstance(place, Range) else "shard, position"
    text = f"SELECT {selected(columns)} FROM noetl.event WHERE {' AND '.join(statement.parts)} ORDER BY {order}"  # noqa: S608 - names of ours, values bound
    return text, statement.values


def located(place: Place) -> list[Condition]:
    """Return what an index is asked for."""
    if isinstance(place, Range):
        bounds = (place.first, place.last)
        return [
            Condition("shard", "shard = {0}", (place.shard,), ("smallint",)),
            Condition("position", "position BETWEEN {0} AND {1}", bounds, ("bigint", "bigint")),
        ]
    marks = (place.start.positions, place.end.positions)
    return [
        Condition("execution_id", "execution_id = ANY ({0})", (place.ids,), ("bigint[]",)),
        Condition(
            "position", "position > ({0})[shard + 1] AND position <= ({1})[shard + 1]", marks, ("bigint[]", "bigint[]")
        ),
    ]


def unless_old(condition: Condition, old: Iterable[tuple[str, int]]) -> Condition:
    """Return the condition, which rows in an old schema need not meet: it is asked of what they become."""
    if condition.column in NEVER_UPCAST:
        return condition
    place = len(condition.values)
    return Condition(
        condition.column,
        f"({condition.text} OR concat(schema_name, ' ', schema_version) = ANY ({{{place}}}))",
        (*condition.values, [f"{name} {version}" for name, version in sorted(old)]),
        (*condition.kinds, "text[]"),
    )


def meets(options: SourceOptions) -> Callable[[Event], bool]:
    """Return the question whether an event is what the options ask for, for events that PostgreSQL was not asked about."""
    exact = {name for name in options.types if not name.endswith("*")}
    starts = tuple(name[:-1] for name in options.types if name.endswith("*"))

    def met(event: Event) -> bool:
        return (
            (options.scope is None or event.stream.scope == options.scope)
            and (options.execution is None or event.execution_id == options.execution)
            and (not options.types or event.event_type in exact or event.event_type.startswith(starts))
            and (options.since is None or event.event_time >= options.since)
            and (options.until is None or event.event_time < options.until)
        )

    return met
