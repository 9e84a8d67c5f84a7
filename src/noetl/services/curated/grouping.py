"""The SQL that groups a view's fact per organization: for PostgreSQL and for Spark alike, so that both give the same.

Everything in it comes from declarations whose names and words are checked; values of tenants are only ever compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from noetl.services.curated.facts import OBJECTS, OTHER, Executions, Field
from noetl.services.curated.rules import HOUR, Bucket, Keep, Period
from noetl.services.curated.view import CuratedView

DAY: Final = 24 * HOUR
_WHOLE: Final = "'^-?[0-9]+$'"
_LONGEST: Final = 18
"""Letters of a number at most; Spark's decimals and PostgreSQL's integers both hold that many digits."""


class Dialect(ABC):
    """How one engine says what the other says differently."""

    events: str
    """The relation that events are read from."""

    @abstractmethod
    def at(self, column: str, path: list[str]) -> str:
        """Return the text at a place of a JSON column."""

    @abstractmethod
    def whole(self, text: str) -> str:
        """Return a text as a whole number; null if it is none."""

    @abstractmethod
    def period(self, time: str, seconds: int) -> str:
        """Return the number of a time's period since 1970."""

    @abstractmethod
    def milliseconds(self, start: str, end: str) -> str:
        """Return the whole milliseconds between two times."""

    @abstractmethod
    def total(self, number: str) -> str:
        """Return the sum of whole numbers, which does not overflow."""

    @abstractmethod
    def instant(self, moment: datetime) -> str:
        """Return a time as it is written."""


class OnPostgres(Dialect):
    """PostgreSQL."""

    events = "events"

    def at(self, column: str, path: list[str]) -> str:
        """See `Dialect`."""
        return f"({column} #>> '{{{','.join(path)}}}')"

    def whole(self, text: str) -> str:
        """See `Dialect`."""
        return f"CASE WHEN {text} ~ {_WHOLE} AND length({text}) <= {_LONGEST} THEN ({text})::bigint END"

    def period(self, time: str, seconds: int) -> str:
        """See `Dialect`."""
        return f"floor(extract(epoch FROM {time}) / {seconds})::bigint"

    def milliseconds(self, start: str, end: str) -> str:
        """See `Dialect`."""
        return f"greatest(floor(extract(epoch FROM {end} - {start}) * 1000)::bigint, 0)"

    def total(self, number: str) -> str:
        """See `Dialect`."""
        return f"coalesce(sum({number}), 0)::double precision"

    def instant(self, moment: datetime) -> str:
        """See `Dialect`."""
        return f"TIMESTAMPTZ '{moment.isoformat()}'"


class OnSpark(Dialect):
    """Spark SQL."""

    events = "{events}"
    """Spark puts a relation in place of it."""

    def at(self, column: str, path: list[str]) -> str:
        """See `Dialect`."""
        return f"get_json_object({column}, '$.{'.'.join(path)}')"

    def whole(self, text: str) -> str:
        """See `Dialect`."""
        return f"CASE WHEN {text} RLIKE {_WHOLE} AND length({text}) <= {_LONGEST} THEN CAST({text} AS BIGINT) END"

    def period(self, time: str, seconds: int) -> str:
        """See `Dialect`."""
        return f"unix_micros({time}) div {seconds * 1_000_000}"

    def milliseconds(self, start: str, end: str) -> str:
        """See `Dialect`."""
        return f"greatest((unix_micros({end}) - unix_micros({start})) div 1000, 0)"

    def total(self, number: str) -> str:
        """See `Dialect`."""
        return f"CAST(coalesce(sum(CAST({number} AS DECIMAL(18, 0))), 0) AS DOUBLE)"

    def instant(self, moment: datetime) -> str:
        """See `Dialect`."""
        return f"TIMESTAMP '{moment.isoformat()}'"


POSTGRES: Final = OnPostgres()
SPARK: Final = OnSpark()


def columns_of(view: CuratedView) -> tuple[str, ...]:
    """Return the columns of events that a view reads, and no others."""
    fact = view.fact
    own = {"tenant_id", "organization_id", "event_type", "event_time"}
    if isinstance(fact, Executions):
        return tuple(sorted(own | {"execution_id", "catalog_id"}))
    read = {place.partition(".")[0] for name in (*view.keys, *view.totals) for place in fact.fields[name].places}
    return tuple(sorted(own | read))


def grouped(view: CuratedView, dialect: Dialect, since: datetime) -> str:
    """Return the SELECT over `events` that gives, per group and organization, keys, number of rows and sums."""
    aliases = {name: f"f{place}" for place, name in enumerate(dict.fromkeys((*view.keys, *view.summed)))}
    events = f"SELECT * FROM {dialect.events} WHERE event_time >= {dialect.instant(since)}"  # noqa: S608
    rows = (_executions if isinstance(view.fact, Executions) else _events)(view, dialect, aliases, events)
    keys = [name for name in view.keys if name not in view.summed]
    shown = [f"{_key(view, name, aliases[name], dialect)} AS k{place}" for place, name in enumerate(keys)]
    sums = [f"{dialect.total(aliases[name])} AS s{place}" for place, name in enumerate(view.summed)]
    selected = ", ".join(["tenant_id", "organization_id", *shown, "count(*) AS n", *sums])
    numbers = ", ".join(str(place + 1) for place in range(2 + len(keys)))
    return f"SELECT {selected} FROM ({rows}) AS fact GROUP BY {numbers}"  # noqa: S608


def _events(view: CuratedView, dialect: Dialect, aliases: dict[str, str], events: str) -> str:
    fields = view.fact.fields
    read = [f"{_value(fields[name], dialect)} AS {alias}" for name, alias in aliases.items()]
    selected = ", ".join(["tenant_id", "organization_id", *read])
    return f"SELECT {selected} FROM ({events}) AS e WHERE event_type IN ({_words(view.fact.types)})"  # noqa: S608


def _executions(view: CuratedView, dialect: Dialect, aliases: dict[str, str], events: str) -> str:
    fact = view.fact
    assert isinstance(fact, Executions)
    start = f"min(CASE WHEN event_type IN ({_words(fact.starts)}) THEN event_time END)"
    end = f"max(CASE WHEN event_type IN ({_words(fact.ends)}) THEN event_time END)"
    failed = _words(one for one in fact.ends if one.endswith(".failed"))
    cancelled = _words(one for one in fact.ends if one.endswith(".cancelled"))
    worst = f"max(CASE WHEN event_type IN ({failed}) THEN 2 WHEN event_type IN ({cancelled}) THEN 1 ELSE 0 END)"
    values = {
        "ended_at": end,
        "outcome": f"CASE {worst} WHEN 2 THEN 'failed' WHEN 1 THEN 'cancelled' ELSE 'completed' END",
        "milliseconds": dialect.milliseconds(start, end),
        "playbook": "max(catalog_id)",
    }
    read = [f"{values[name]} AS {alias}" for name, alias in aliases.items()]
    selected = ", ".join(["tenant_id", "organization_id", *read])
    return (
        f"SELECT {selected} FROM ({events}) AS e GROUP BY tenant_id, organization_id, execution_id"  # noqa: S608
        f" HAVING {start} IS NOT NULL AND {end} IS NOT NULL"
    )


def _value(field: Field, dialect: Dialect) -> str:
    found = [_place(place, dialect) for place in field.places]
    if field.kind == "number":
        found = [dialect.whole(one) for one in found]
    return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"


def _place(place: str, dialect: Dialect) -> str:
    column, *path = place.split(".")
    return dialect.at(column, path) if column in OBJECTS else column


def _key(view: CuratedView, name: str, value: str, dialect: Dialect) -> str:
    rule = view.rules[name]
    if isinstance(rule, Period):
        return dialect.period(value, HOUR if rule.unit == "hour" else DAY)
    if isinstance(rule, Bucket):
        steps = " ".join(f"WHEN {value} < {edge} THEN {place}" for place, edge in enumerate(rule.edges))
        return f"CASE WHEN {value} IS NULL THEN NULL {steps} ELSE {len(rule.edges)} END"
    if isinstance(rule, Keep):
        words = _words(view.fact.fields[name].values)
        return f"CASE WHEN {value} IN ({words}) THEN {value} WHEN {value} IS NOT NULL THEN '{OTHER}' END"
    return value


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
