"""The ledger in PostgreSQL: `noetl.event`, written by `noetl.append`, or by the materializer, read page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import msgspec

from noetl.errors import AlreadyRecorded, EventInvalid, NoetlError, Unavailable
from noetl.faults import reach
from noetl.kernel.ledger.after_commit import after_commit
from noetl.kernel.ledger.batch import Request, answers_of, arguments, request, work_request
from noetl.kernel.ledger.chain.stored import StoredLinks
from noetl.kernel.ledger.claim_checks import Checks
from noetl.kernel.ledger.postgres.committer import AGAIN, Committer, make_partitions
from noetl.kernel.ledger.postgres.coverage import COVERED_SECONDS, Coverage
from noetl.kernel.ledger.postgres.database import Connection, Database, Role
from noetl.kernel.ledger.postgres.notifier import Notifier, listening
from noetl.kernel.ledger.postgres.write_path import WayChangedError, WritePath
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import Appended, Draft, Event
from noetl.model.mark import Mark, ReadToken, VersionToken
from noetl.model.stream import SHARD_COUNT, Scope, Stream, execution_stream

PAGE_EVENTS = 5_000
"""Rows fetched by one query."""
DECODED_TOGETHER = 250
"""Few enough that they are still in the processor's cache when they are folded, which halves the time of decoding."""
_LAST = (1 << 63) - 1

_READ_STREAM = f"SELECT {COLUMNS} FROM noetl.known_event WHERE stream_id = $1 AND stream_version >= $2 AND ($3::bigint IS NULL OR execution_id = $3) ORDER BY stream_version LIMIT $4"  # noqa: S608
_READ_EXECUTION = f"SELECT {COLUMNS} FROM noetl.event WHERE execution_id = $1 AND shard = $2 AND position BETWEEN $3 AND $4 AND starts_with(stream_id, 'execution/') ORDER BY position LIMIT $5"  # noqa: S608
_READ_SHARD = (
    f"SELECT {COLUMNS} FROM noetl.event WHERE shard = $1 AND position BETWEEN $2 AND $3 ORDER BY position LIMIT $4"  # noqa: S608
)


class PostgresLedger:
    """See `Ledger` and `RowDecisions` for the promises."""

    def __init__(
        self,
        database: Database,
        *,
        key_ttl: timedelta = timedelta(days=30),
        poll_seconds: float = 1.0,
        listen: bool = True,
        checks: Checks | None = None,
    ) -> None:
        self._database = database
        self._key_ttl = key_ttl
        self._poll_seconds = poll_seconds
        self._notifier = Notifier(database, enabled=listen)
        self.way = WritePath(database)
        """How appends reach the ledger; found out by the first that goes wrong."""
        self.links = StoredLinks(database).links
        self._coverage = Coverage(database, poll_seconds)
        self._committer = Committer(database, self.way, key_ttl, self._notifier.touch)
        self.checks = checks or Checks()
        """What is looked at in events before they are appended."""
        self.on_transition: Callable[[Transition], None] | None = None
        """Told about every change of work that was recorded, for counting."""

    async def close(self) -> None:
        """Write what is queued and wake the readers; the database stays open."""
        await self._committer.close()
        await self._coverage.close()
        await self._notifier.close()

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record drafts at the end of a stream, in one group with what else is appended now."""
        asked = request(stream, drafts, expected_version, self.checks)
        (answer,) = await self._committer.append(asked)
        if not asked.waits:
            return answer
        # Where the events stand is known once the materializer has written them.
        owner = drafts[0].execution_id
        first = await self._coverage.position(stream.scope, owner, answer.event_ids[0], COVERED_SECONDS)
        return msgspec.structs.replace(
            answer, first_position=first, last_position=first + answer.last_position - answer.first_position
        )

    async def settled(self, seconds: float = COVERED_SECONDS) -> None:
        """Wait until no event of the past waits for the materializer, or raise `Unavailable`."""
        if await self.way.known() != "ledger":
            await self._coverage.nothing_waits(seconds)

    async def covered(self, token: ReadToken | VersionToken, scope: Scope, seconds: float) -> None:
        """Wait until what a token stands for is in the ledger, or raise `Unavailable`."""
        if isinstance(token, VersionToken):
            await self._coverage.version(scope, token, seconds)
            return
        await self._coverage.position(scope, token.execution_id, token.event_id, seconds)

    async def transact(self, transition: Transition) -> tuple[Appended, ...]:
        """Record a change of work, in one group with what else is written now."""
        answers = await self._committer.append(work_request(transition, self.checks))
        if self.on_transition is not None:
            after_commit("counting it", self.on_transition, transition)
        return answers

    @asynccontextmanager
    async def decision(self, scope: Scope) -> AsyncIterator[PostgresDecision]:
        """Open a transaction for changing rows and recording that change; see `RowDecisions`."""
        # A transaction that goes the wrong way cannot go on, so the way is found out before it begins.
        await self.way.known()
        await self.way.check()
        reach("append.before_begin")
        touched: set[int] = set()
        async with self._database.transaction(scope) as connection:
            yield PostgresDecision(self._database, self.way, connection, scope, self._key_ttl, touched, self.checks)
            reach("append.after_heads")
        reach("append.after_commit")
        after_commit("waking readers", self._notifier.touch, touched)

    async def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Event]:
        """Give the events of a stream."""
        version = from_version
        while True:
            async with self._database.transaction(stream.scope) as connection:
                rows = await connection.fetch(_READ_STREAM, stream.stream_id, version, stream.execution_id, PAGE_EVENTS)
            for event in to_events(rows):
                yield event
            if len(rows) < PAGE_EVENTS:
                return
            version = rows[-1]["stream_version"] + 1

    async def read_execution(
        self, scope: Scope, execution_id: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of an execution."""
        async for page in self.execution_pages(scope, execution_id, from_position, to_position=to_position):
            for event in page:
                yield event

    async def execution_pages(
        self, scope: Scope, execution_id: int, from_position: int = 1, *, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of an execution in pages."""
        keys = (execution_id, execution_stream(scope, execution_id).shard)
        async for page in self._pages(scope, "runtime", _READ_EXECUTION, keys, from_position, to_position):
            yield page

    async def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard, of one organization or of all."""
        async for page in self.shard_pages(shard, from_position, scope=scope, to_position=to_position):
            for event in page:
                yield event

    async def shard_pages(
        self, shard: int, from_position: int, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard in pages."""
        role: Role = "projector" if scope is None else "runtime"
        async for page in self._pages(scope, role, _READ_SHARD, (shard,), from_position, to_position):
            yield page

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        async with self._database.transaction(None) as connection:
            rows = await connection.fetch("SELECT shard, position FROM noetl.shard ORDER BY shard")
        return Mark([row["position"] for row in rows])

    async def subscribe(
        self, cursor: Mark, *, scope: Scope | None = None, shards: Sequence[int] | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give events after the cursor, and wait for more."""
        wanted = range(SHARD_COUNT) if shards is None else shards
        after = {shard: cursor.positions[shard] for shard in wanted}
        role: Role = "projector" if scope is None else "runtime"
        heard = False
        while True:
            try:
                async with listening(self._database, role, self._poll_seconds) as listener:
                    heard, changed = True, None
                    while not listener.lost:
                        async for page in self._news(after, scope, changed):
                            yield page
                        changed = await listener.wait()
            except Unavailable:
                # A restart of the server ends no subscription: it goes on from where it was.
                if not heard:
                    raise
                await asyncio.sleep(self._poll_seconds)

    async def _news(
        self, after: dict[int, int], scope: Scope | None, changed: set[int] | None
    ) -> AsyncIterator[list[Event]]:
        """Give what stands after the positions, in the shards that changed or in all, and move the positions on."""
        head = await self.head()
        for shard in after if changed is None else after.keys() & changed:
            async for page in self.shard_pages(shard, after[shard] + 1, scope=scope, to_position=head.positions[shard]):
                after[shard] = page[-1].position
                yield page
            after[shard] = head.positions[shard]

    async def _pages(
        self,
        scope: Scope | None,
        role: Role,
        query: str,
        keys: tuple[int, ...],
        from_position: int,
        to_position: int | None,
    ) -> AsyncIterator[list[Event]]:
        position, last = from_position, _LAST if to_position is None else to_position
        while position <= last:
            async with self._database.transaction(scope, role) as connection:
                rows = await connection.fetch(query, *keys, position, last, PAGE_EVENTS)
            for start in range(0, len(rows), DECODED_TOGETHER):
                yield to_events(rows[start : start + DECODED_TOGETHER])
            if len(rows) < PAGE_EVENTS:
                return
            position = rows[-1]["position"] + 1


class PostgresDecision:
    """See `RowDecision` for the promises."""

    def __init__(
        self,
        database: Database,
        way: WritePath,
        connection: Connection,
        scope: Scope,
        key_ttl: timedelta,
        touched: set[int],
        checks: Checks,
    ) -> None:
        self._database = database
        self._way = way
        self.connection = connection
        self._scope = scope
        self._key_ttl = key_ttl
        self._touched = touched
        self._checks = checks

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record drafts in this transaction; a refusal raises and thereby undoes the inline changes too."""
        item = request(stream, drafts, expected_version, self._checks)
        reach("append.before_heads")
        values = arguments(self._scope, [item], self._key_ttl)
        try:
            row = await self.connection.fetchrow(self._way.sql, *values)
        except asyncpg.UniqueViolationError as clash:
            raise AlreadyRecorded(f"a fact of this append to {stream.stream_id} stands already") from clash
        except asyncpg.CheckViolationError as problem:
            raise await self._refusal(item, problem) from problem
        except WayChangedError as problem:
            await self._way.look()
            await self._way.check()
            raise Unavailable("the write path was changed meanwhile; try again") from problem
        except AGAIN as problem:
            raise Unavailable(f"PostgreSQL asks to try this decision again: {problem}") from problem
        assert row is not None
        answer = answers_of([item], [row])[0]
        if isinstance(answer, NoetlError):
            raise answer
        self._touched.add(answer[0].shard)
        return answer[0]

    async def _refusal(self, item: Request, problem: asyncpg.CheckViolationError) -> NoetlError:
        """Make a missing partition, which this transaction is too late for, and say that another try will succeed."""
        if await make_partitions(self._database, [item], problem):
            return Unavailable("the partition of this execution was missing and is made now; try again")
        return EventInvalid(f"the ledger refuses this event: {problem}")
