"""Group commit: concurrent appends of a process are gathered per organization and written by one statement.

While one statement is under way the next group gathers, so the group grows with the load and a lone append never
waits. A crowd of those who wait for each answer before they ask again is parted in two: while the server writes the
one half, this process decides on the answers of the other. A lost connection is retried: event ids make a second try recognisable, so nothing is written twice and a first try that did commit is not
mistaken for somebody else's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from noetl.errors import AlreadyRecorded, Conflict, EventInvalid, NoetlError, Unavailable
from noetl.faults import reach
from noetl.kernel.ledger.after_commit import after_commit
from noetl.kernel.ledger.batch import Part, Request, answer_of, answers_of, arguments
from noetl.kernel.ledger.postgres.database import LOST, Database, translated
from noetl.kernel.ledger.postgres.write_path import WayChangedError, WritePath
from noetl.model.event import Appended
from noetl.model.stream import Scope

GROUP_EVENTS = 1000
"""A group is closed at this many events: larger ones gain little and hold shard heads longer."""

_RETRY_WAITS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
_ONE_CULPRIT = (asyncpg.UniqueViolationError, asyncpg.DataError, asyncpg.ProgramLimitExceededError)

CROWD = 64
"""So many requests that wait are worth parting in two groups: a statement costs the server as much as several in it."""
GATHERING_TURNS = 4
"""Turns of the loop within which those that were just answered ask again."""


class _Line:
    """The requests of one organization that wait, and who writes them."""

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.writer: asyncio.Task[None] | None = None
        self._last = 0
        self._together = False

    async def gathered(self) -> bool:
        """Wait a moment if far fewer are here than the last group had, and tell whether there are any."""
        self._together = self._last > 0 and not self.waiting
        for _ in range(GATHERING_TURNS):
            if 2 * len(self.waiting) >= self._last:
                break
            await asyncio.sleep(0)
        return bool(self.waiting)

    def take(self) -> list[Request]:
        """Take the next group; half of a crowd whose members were all answered together, so that halves take turns."""
        here = len(self.waiting)
        group = _take_group(self.waiting, -(-here // 2) if self._together and here >= CROWD else here)
        self._last = len(group)
        return group


class Committer:
    """Writes the appends of one process."""

    def __init__(
        self, database: Database, way: WritePath, key_ttl: timedelta, written: Callable[[set[int]], None]
    ) -> None:
        self._database = database
        self._way = way
        self._key_ttl = key_ttl
        self._written = written
        self._lines: dict[tuple[Scope, bool], _Line] = {}

    async def append(self, item: Request) -> tuple[Appended, ...]:
        """Queue a request and wait for its answers, one per part."""
        key = (item.scope, item.works)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        line.waiting.append(item)
        if line.writer is None:
            line.writer = asyncio.create_task(self._write_all(key, line), name=f"noetl-committer-{item.scope}")
        return await item.answer

    async def close(self) -> None:
        """Wait until everything queued is written or refused."""
        while self._lines:
            await asyncio.gather(*(line.writer for line in self._lines.values() if line.writer))
        await self._database.give_back()

    async def _write_all(self, key: tuple[Scope, bool], line: _Line) -> None:
        try:
            # This task began one turn of the loop after the first append, so those started together are all here.
            while await line.gathered():
                group = line.take()
                try:
                    with translated():
                        await self._write(key[0], group)
                except Exception as problem:
                    _answer_all(group, problem)
                except asyncio.CancelledError as problem:
                    _answer_all(group, problem)
                    raise
        finally:
            self._lines.pop(key, None)
            _answer_all(line.waiting, Unavailable("the ledger was closed before this append was written"))

    async def _write(self, scope: Scope, group: list[Request]) -> None:
        try:
            answers = await self._send(scope, group)
        except _ONE_CULPRIT as problem:
            if len(group) == 1:
                _answer(group[0], await self._explain(scope, group[0], problem))
                return
            # One culprit must not take the others with it: write each by itself.
            for item in group:
                await self._write(scope, [item])
            return
        pairs = list(zip(group, answers, strict=True))
        for item, answer in pairs:
            if not isinstance(answer, Conflict):
                _answer(item, answer)
        for item, answer in pairs:
            if isinstance(answer, Conflict):
                _answer(item, await self._standing(scope, item) or answer)

    async def _send(self, scope: Scope, group: Sequence[Request]) -> list[tuple[Appended, ...] | NoetlError]:
        values = arguments(scope, group, self._key_ttl)
        rows = await self._call(group, values)
        reach("append.after_commit")
        parts = [part for item in group for part in item.parts]
        touched = {part.place.shard for part, row in zip(parts, rows, strict=True) if row[0] == 0}
        after_commit("waking readers", self._written, touched)
        return answers_of(group, rows)

    async def _call(self, group: Sequence[Request], values: list[Any]) -> list[Any]:
        for wait in (*_RETRY_WAITS, None):
            await self._way.check()
            try:
                kept = await self._database.kept()
                reach("append.before_begin")
                way, waits = self._way.sql, self._way.waits
                async with kept.taken() as connection:
                    rows = list(await connection.fetch(way, *values))
                for item in group:
                    item.waits = waits
                return rows
            except WayChangedError as problem:
                if await self._way.look() == "draining":
                    if wait is None:
                        raise Unavailable(
                            f"the write path is being changed, and nothing was written: {problem}"
                        ) from problem
                    await asyncio.sleep(wait)
            except asyncpg.CheckViolationError as problem:
                if not await make_partitions(self._database, group, problem):
                    raise EventInvalid(f"the ledger refuses this event: {problem}") from problem
            except (*LOST, Unavailable, *AGAIN) as problem:
                if wait is None:
                    raise Unavailable(
                        f"PostgreSQL does not answer, so it is unknown whether the events were written: {problem}",
                        hint="append the same events again: their ids tell whether they stand already",
                    ) from problem
                await asyncio.sleep(wait)
        raise Unavailable("the partition of an event could not be made")

    async def _explain(
        self, scope: Scope, item: Request, problem: asyncpg.PostgresError
    ) -> tuple[Appended, ...] | NoetlError:
        """Say what a refused statement means for its only request."""
        if not isinstance(problem, asyncpg.UniqueViolationError):
            return EventInvalid(f"PostgreSQL cannot store this event: {problem}")
        standing = await self._standing(scope, item)
        if standing is not None:
            return standing
        if "pkey" in (problem.constraint_name or ""):
            return EventInvalid("an event_id of this append is already used by another event")
        return AlreadyRecorded(f"a fact of this append to {item.parts[0].stream.stream_id} stands already")

    async def _standing(self, scope: Scope, item: Request) -> tuple[Appended, ...] | None:
        """Find the events of a request that was written before, its answer being lost with the connection."""
        found = [await self._standing_part(scope, part) for part in item.parts]
        answers = tuple(answer for answer in found if answer is not None)
        return answers if len(answers) == len(found) else None

    async def _standing_part(self, scope: Scope, part: Part) -> Appended | None:
        async with self._database.transaction(scope) as connection:
            known = await connection.fetch(
                "SELECT event_id, stream_version, position FROM noetl.known_event WHERE execution_id = $1 AND stream_id = $2"
                " AND event_id = ANY ($3) ORDER BY position",
                part.drafts[0].execution_id,
                part.stream.stream_id,
                list(part.event_ids),
            )
        if [row["event_id"] for row in known] != list(part.event_ids):
            return None
        if known[-1]["position"] - known[0]["position"] != len(known) - 1:
            return None
        answer = answer_of(part, 0, known[0]["stream_version"], known[0]["position"], None)
        assert isinstance(answer, Appended)
        return answer


async def make_partitions(database: Database, group: Sequence[Request], problem: asyncpg.CheckViolationError) -> bool:
    """Make the partitions of these requests; False when the violated check is another."""
    if problem.constraint_name is not None:
        return False
    pool = await database.pool()
    for execution_id in {draft.execution_id for item in group for part in item.parts for draft in part.drafts}:
        await pool.execute("SELECT noetl.ensure_event_partition($1)", execution_id)
    return True


def _take_group(waiting: deque[Request], most: int) -> list[Request]:
    """Take so many requests, up to the group's size; one that repeats a key of the group, or works otherwise, waits."""
    group: list[Request] = []
    keys: set[str] = set()
    size = 0
    while waiting and len(group) < most and (not group or size + waiting[0].size <= GROUP_EVENTS):
        item = waiting[0]
        own = [key for part in item.parts for key, _ in part.keys]
        if (group and item.works != group[0].works) or not keys.isdisjoint(own):
            break
        group.append(waiting.popleft())
        keys.update(own)
        size += item.size
    return group


def _answer(item: Request, answer: tuple[Appended, ...] | BaseException) -> None:
    if item.answer.done():
        return
    if isinstance(answer, BaseException):
        item.answer.set_exception(answer)
    else:
        item.answer.set_result(answer)


def _answer_all(items: Sequence[Request] | deque[Request], problem: BaseException) -> None:
    for item in items:
        _answer(item, problem)
