"""Events that were moved out of the database: which places they are missing from, and the events themselves.

What History reads is read here too, proven on the way; what was removed for good, or cannot be reached, is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import pyarrow as pa

from noetl.errors import ConfigError, HistoryNotKept
from noetl.kernel.ledger.archive.partition import partition_of
from noetl.kernel.ledger.archive.reader import Archives
from noetl.kernel.ledger.archive.rows import not_kept
from noetl.kernel.ledger.history import History, open_history
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.event import Event
from noetl.spark.source.connections import Transaction
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.payload_store import open_store
from noetl.spark.source.ranges import Executions, Place, Range
from noetl.spark.source.statement import Condition, Statement, meets, scoped
from noetl.spark.source.upcasters import SourceUpcasters, as_batch

_BATCH_EVENTS: Final = 5_000
_REACHED: Final = (
    "SELECT r.place, a.partition, a.removed_at IS NOT NULL AS removed FROM noetl.event_archive AS a"
    " JOIN unnest({0}, {1}, {2}) WITH ORDINALITY AS r (shard, first, last, place)"
    " ON (a.bounds -> r.shard ->> 0)::bigint <= r.last AND (a.bounds -> r.shard ->> 1)::bigint >= r.first"
    " WHERE a.dropped_at IS NOT NULL"
)
_MONTHS: Final = (
    "SELECT a.partition, a.removed_at IS NOT NULL AS removed FROM noetl.event_archive AS a"
    " WHERE a.dropped_at IS NOT NULL AND a.partition = ANY ({0})"
)


def parted(
    transaction: Transaction, options: SourceOptions, places: Sequence[Place]
) -> tuple[list[Place], list[Place]]:
    """Return the places to read from the database and those of which archives have a part, as the transaction sees it."""
    spans = [place for place in places if isinstance(place, Range)]
    reached = _reached(transaction, options, spans) if spans else set()
    live: list[Place] = [place for place in spans if place not in reached]
    gone: list[Place] = [place for place in spans if place in reached]
    for place in places:
        if isinstance(place, Executions):
            months = {one: _month(one) for one in place.ids}
            dropped = _dropped(transaction, options, sorted(set(filter(None, months.values()))))
            kept = tuple(one for one in place.ids if months[one] not in dropped)
            moved = tuple(one for one in place.ids if months[one] in dropped)
            live += [Executions(kept, place.start, place.end)] if kept else []
            gone += [Executions(moved, place.start, place.end)] if moved else []
    return live, gone


def read_archived(options: SourceOptions, place: Place, upcasters: SourceUpcasters) -> Iterator[pa.RecordBatch]:
    """Give the events of a place, those in archives and those beside them in the database, in their newest schema."""
    if options.payloads_url is None:
        raise ConfigError(
            f"events of {_shown(place)} were archived: set the option payloads_url to where the payloads are kept, like "
            "file:///var/lib/noetl/payloads or s3://bucket/prefix?region=…"
        )
    met = meets(options)
    page: list[Event] = []
    for event in _waited(options, place):
        newest = upcasters.upcast(event)
        if met(newest):
            page.append(newest)
        if len(page) == _BATCH_EVENTS:
            yield as_batch(page)
            page = []
    if page:
        yield as_batch(page)


def _reached(transaction: Transaction, options: SourceOptions, spans: list[Range]) -> set[Range]:
    bounds = ([str(one.shard) for one in spans], [one.first for one in spans], [one.last for one in spans])
    found = _asked(transaction, options, Condition("", _REACHED, bounds, ("text[]", "bigint[]", "bigint[]")))
    return {spans[row["place"] - 1] for row in found}


def _dropped(transaction: Transaction, options: SourceOptions, months: list[str]) -> set[str]:
    if not months:
        return set()
    return {row["partition"] for row in _asked(transaction, options, Condition("", _MONTHS, (months,), ("text[]",)))}


def _asked(transaction: Transaction, options: SourceOptions, question: Condition) -> list[dict[str, Any]]:
    statement = Statement()
    parts = [statement.rendered(question), *(f"a.{statement.rendered(one)}" for one in scoped(options))]
    found = transaction.rows(" AND ".join(parts), statement.values)
    removed = sorted({row["partition"] for row in found if row["removed"]})
    if removed:
        raise HistoryNotKept(
            f"the archive of {', '.join(removed)} was removed; read what is kept, with the option after or since"
        )
    return found


def _waited(options: SourceOptions, place: Place) -> Iterator[Event]:
    """Give the events of an asynchronous reading to a caller that has no event loop."""
    with asyncio.Runner() as runner:
        events = _events(options, place)
        try:
            while True:
                yield runner.run(anext(events))
        except StopAsyncIteration:
            return
        finally:
            runner.run(events.aclose())


async def _events(options: SourceOptions, place: Place) -> AsyncGenerator[Event, None]:
    async with _opened(options) as (history, archives):
        if isinstance(place, Range):
            read = history.read_shard(place.shard, place.first, scope=options.scope, to_position=place.last)
            async for event in read:
                yield event
            return
        for one in place.ids:
            for row in await archives.rows(options.scope, _month(one)):
                if row.removed:
                    raise not_kept([row])
                for shard in sorted(row.bounds):
                    bounds = (place.start.positions[shard] + 1, place.end.positions[shard])
                    wanted = f'"execution_id":"{one}"'.encode()
                    async with aclosing(archives.events(row, shard, *bounds, wanted, one)) as events:
                        async for event in events:
                            if event.execution_id == one:
                                yield event


@asynccontextmanager
async def _opened(options: SourceOptions) -> AsyncGenerator[tuple[History, Archives], None]:
    database = Database(options.url, as_roles=options.as_roles, pool_max=2)
    store = open_store(options.payloads_url or "")
    try:
        async with open_history(database, store) as history:
            yield history, Archives(database, store)
    finally:
        await database.close()


def _month(execution_id: int) -> str | None:
    month = partition_of(execution_id)
    return None if month is None else month.name


def _shown(place: Place) -> str:
    if isinstance(place, Range):
        return f"shard {place.shard} between positions {place.first} and {place.last}"
    return f"execution {', '.join(map(str, place.ids[:3]))}"
