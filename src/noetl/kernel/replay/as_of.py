"""Where to cut: a position, an event, a time, a mark or the head goes in, the last position of each shard to fold comes out.

Time means ingest time, which never runs backwards within a shard, so that everything up to a time is a prefix. Which
prefix is found by halving over positions, without an index on time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from noetl.errors import EventsWait, InputError, NotFound
from noetl.kernel.ledger.archive.rows import archive_rows
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.replay.pages import EventPages, reading
from noetl.model.event import is_utc, parse_time
from noetl.model.ids import MAX_ID, ROOT_ID_LIMIT, snowflake_time
from noetl.model.mark import Mark
from noetl.model.stream import Scope, execution_stream

_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_CLOCKS_APART: Final = timedelta(minutes=1)
"""How much earlier than its id says an event may have been taken in: clocks differ and ids may run ahead."""


class AsOf(msgspec.Struct, frozen=True, kw_only=True):
    """A point in the history; all of it, up to the head, when nothing is given."""

    position: int | None = None
    event_id: int | None = None
    time: datetime | None = None
    mark: Mark | None = None
    number: int | None = None
    """So many events of an execution, counted from its first."""

    def __post_init__(self) -> None:
        """Refuse what names no point, or two."""
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} name different points; give one")
        if self.position is not None and self.position < 1:
            raise InputError(f"there is no position {self.position}; positions start at 1")
        if self.number is not None and self.number < 1:
            raise InputError(f"there is no event number {self.number}; events are counted from 1")
        if self.time is not None and not is_utc(self.time):
            raise InputError(f"the time {self.time.isoformat()} is not in UTC")

    @classmethod
    def parse(cls, text: str) -> AsOf:
        """Read what a person writes: a mark's token, a time, an event's id, a position, or `head`."""
        if text == "head":
            return HEAD
        if text.startswith("m1."):
            return cls(mark=Mark.parse(text))
        if _DIGITS.fullmatch(text):
            number = int(text)
            # No ledger reaches a position of this size, and no event has an id below it.
            if number < ROOT_ID_LIMIT:
                return cls(position=number)
            if number <= MAX_ID:
                return cls(event_id=number)
        try:
            return cls(time=parse_time(text))
        except ValueError:
            raise InputError(
                f"{text[:120]!r} is no point in the history",
                hint="give a mark (m1.…), a time like 2026-05-16T12:34:56Z, an event id, a position, or head",
            ) from None


HEAD: Final = AsOf()

_SPAN = "SELECT min(position) AS first, max(position) AS last FROM noetl.event WHERE execution_id = $1 AND shard = $2"
_WAITS = "SELECT EXISTS (SELECT FROM noetl.pending_event WHERE execution_id = $1)"
_BY_TIME = (
    "SELECT position FROM noetl.event WHERE execution_id = $1 AND shard = $2 AND ingest_time <= $3"
    " ORDER BY position DESC LIMIT 1"
)
_BY_ID = "SELECT shard, position, ingest_time FROM noetl.event WHERE execution_id = $1 AND event_id = $2"
_FROM = "SELECT position, ingest_time FROM noetl.event WHERE shard = $1 AND position >= $2 ORDER BY position LIMIT 1"
_SEARCH = "SELECT position, ingest_time FROM noetl.event WHERE event_id = $1 AND shard = $2 AND position >= $3 LIMIT 1"


async def resolve_execution(
    history: EventPages, database: Database | None, scope: Scope, execution_id: int, as_of: AsOf = HEAD
) -> int:
    """Return the position, in the execution's shard, up to which to fold; 0 when it had not begun.

    Without a database the events themselves are looked through, which gives the same answer.
    """
    shard = execution_stream(scope, execution_id).shard
    if as_of.position is not None:
        head = (await history.head()).positions[shard]
        if as_of.position > head:
            raise InputError(
                f"position {as_of.position} is beyond the head of shard {shard}, which is {head}",
                shard=shard,
                head=head,
            )
    if as_of.number is not None:
        return await _by_number(history, scope, execution_id, as_of.number)
    if database is not None:
        async with database.transaction(scope) as connection:
            span = await connection.fetchrow(_SPAN, execution_id, shard)
            if span is not None and span["last"] is not None:
                return await _by_rows(connection, execution_id, shard, as_of, span["last"])
            if await connection.fetchval(_WAITS, execution_id):
                raise EventsWait(
                    f"execution {execution_id} is accepted, and none of its events is in the ledger yet",
                    hint="try again in a moment; `noetl stream status` shows how far the materializer is",
                )
    return await _by_events(history, scope, execution_id, shard, as_of)


async def _by_rows(connection: Any, execution_id: int, shard: int, as_of: AsOf, last: int) -> int:
    if as_of.time is not None:
        return await connection.fetchval(_BY_TIME, execution_id, shard, as_of.time) or 0
    if as_of.event_id is not None:
        found = await connection.fetchrow(_BY_ID, execution_id, as_of.event_id)
        if found is None or found["shard"] != shard:
            raise _not_its_event(execution_id, as_of.event_id)
        return int(found["position"])
    return min(last, _bound(as_of, shard, last))


async def _by_events(history: EventPages, scope: Scope, execution_id: int, shard: int, as_of: AsOf) -> int:
    last, found = 0, None
    async with reading(history.execution_pages(scope, execution_id)) as pages:
        async for page in pages:
            for event in page:
                last = event.position
                if event.event_id == as_of.event_id or (as_of.time is not None and event.ingest_time <= as_of.time):
                    found = last
    if not last:
        raise _no_execution(scope, execution_id)
    if as_of.event_id is not None and found is None:
        raise _not_its_event(execution_id, as_of.event_id)
    if as_of.event_id is not None or as_of.time is not None:
        return found or 0
    return min(last, _bound(as_of, shard, last))


async def _by_number(history: EventPages, scope: Scope, execution_id: int, number: int) -> int:
    """Return the position of an execution's so-manieth event; archives have the first ones of long executions."""
    counted = 0
    async with reading(history.execution_pages(scope, execution_id)) as pages:
        async for page in pages:
            if counted + len(page) >= number:
                return page[number - counted - 1].position
            counted += len(page)
    if not counted:
        raise _no_execution(scope, execution_id)
    raise InputError(
        f"execution {execution_id} has {counted} events, and no event number {number}",
        hint=f"`noetl replay {execution_id} --as-of {number}` takes the position that `noetl events` shows",
    )


def _no_execution(scope: Scope, execution_id: int) -> NotFound:
    return NotFound(
        f"there is no execution {execution_id} in {scope.tenant_id}/{scope.organization_id}",
        hint="`noetl events last` shows the newest one",
    )


def _bound(as_of: AsOf, shard: int, last: int) -> int:
    if as_of.mark is not None:
        return as_of.mark.positions[shard]
    return last if as_of.position is None else as_of.position


def _not_its_event(execution_id: int, event_id: int) -> InputError:
    return InputError(
        f"execution {execution_id} has no event {event_id}",
        hint=f"`noetl events {execution_id} --json` lists its events",
    )


async def resolve_organization(
    history: EventPages, database: Database | None, scope: Scope, as_of: AsOf = HEAD
) -> Mark:
    """Return the position of each shard up to which to fold.

    An event cuts its own shard at its position and the others at its ingest time.
    """
    head = await history.head()
    if as_of.position is not None or as_of.number is not None:
        raise InputError(
            "a position says where one shard is; an organization lives in all of them",
            hint="give a mark (m1.…), a time or an event id, or name an execution",
        )
    if as_of.mark is not None:
        if not head.covers(as_of.mark):
            raise InputError(f"the mark {as_of.mark} is beyond the head, which is {head}")
        return as_of.mark
    if as_of.event_id is not None:
        shard, position, ingested = await _find_event(history, database, scope, head, as_of.event_id)
        return (await _cut_at(history, database, scope, head, ingested)).with_position(shard, position)
    return head if as_of.time is None else await _cut_at(history, database, scope, head, as_of.time)


async def _cut_at(history: EventPages, database: Database | None, scope: Scope, head: Mark, time: datetime) -> Mark:
    return Mark(
        [await _shard_cut(history, database, scope, shard, last, time) for shard, last in enumerate(head.positions)]
    )


async def _shard_cut(
    history: EventPages, database: Database | None, scope: Scope, shard: int, last: int, time: datetime
) -> int:
    """Return the largest position of a shard that was taken in by that time.

    Rows of all tenants are looked at, for a position and its time alone: those of one organization may lie far apart.
    """
    low, high = 0, last + 1
    if database is not None:
        async with database.transaction(None, "projector") as connection:
            low, high = await _halve(connection, shard, last, time)
        if high - low > 1:
            low = await _after_removed(database, scope, shard, low, high, time)
    if high - low == 1:
        return low
    # Positions are dense: what is missing between the two was archived and dropped, and is read from there.
    async with reading(history.shard_pages(shard, low + 1, scope=scope, to_position=high - 1)) as pages:
        async for page in pages:
            for event in page:
                if event.ingest_time > time:
                    return low
                low = event.position
    return low


async def _after_removed(database: Database, scope: Scope, shard: int, low: int, high: int, time: datetime) -> int:
    """Return where to go on after archives that were removed: what was archived by that time was taken in before it."""
    async with database.transaction(scope) as connection:
        rows = await archive_rows(connection)
    ends = [row.bounds[shard][1] for row in rows if row.removed and shard in row.bounds and row.archived_at <= time]
    return max([low, *(end for end in ends if end < high)])


async def _halve(connection: Any, shard: int, last: int, time: datetime) -> tuple[int, int]:
    """Return the last row taken in by that time and the first taken in later."""
    low, high, upper = 0, last + 1, last + 1
    while low + 1 < upper:
        middle = (low + upper) // 2
        row = await connection.fetchrow(_FROM, shard, middle)
        if row is None or row["position"] >= high:
            upper = middle
        elif row["ingest_time"] <= time:
            low = row["position"]
        else:
            high, upper = row["position"], middle
    return low, high


async def _find_event(
    history: EventPages, database: Database | None, scope: Scope, head: Mark, event_id: int
) -> tuple[int, int, datetime]:
    """Find an event by its id alone, beginning where it is likely: it was not taken in long before it was minted."""
    minted = snowflake_time(event_id) - _CLOCKS_APART
    likely = await _cut_at(history, database, scope, head, minted)
    for start in (likely, Mark.zero(len(head.positions))):
        for shard, after in enumerate(start.positions):
            found = await _search_shard(history, database, scope, shard, after + 1, event_id)
            if found is not None:
                return shard, *found
    raise NotFound(f"there is no event {event_id} in {scope.tenant_id}/{scope.organization_id}")


async def _search_shard(
    history: EventPages, database: Database | None, scope: Scope, shard: int, first: int, event_id: int
) -> tuple[int, datetime] | None:
    if database is not None:
        async with database.transaction(scope) as connection:
            row = await connection.fetchrow(_SEARCH, event_id, shard, first)
        return None if row is None else (row["position"], row["ingest_time"])
    async with reading(history.shard_pages(shard, first, scope=scope)) as pages:
        async for page in pages:
            for event in page:
                if event.event_id == event_id:
                    return event.position, event.ingest_time
    return None
