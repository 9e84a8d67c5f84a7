"""Reads the ledger as if nothing had ever been dropped: live rows and archived ones, merged by position.

What was archived is read from the payload store and proven on the way; what was removed for good is `HistoryNotKept`.
A partition that is dropped while it is being read is noticed, and reading goes on in its archive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from noetl.errors import Corrupt, NoetlError
from noetl.kernel.ledger.archive.manifest import Payloads
from noetl.kernel.ledger.archive.partition import partition_of
from noetl.kernel.ledger.archive.reader import Archives, merged
from noetl.kernel.ledger.archive.rows import ArchiveRow, not_kept
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PAGE_EVENTS, PostgresLedger
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope, Stream, execution_stream

_LAST = (1 << 63) - 1


@asynccontextmanager
async def open_history(database: Database, payloads: Payloads) -> AsyncIterator[History]:
    """Give the history in a database for the time of the block, for a process that only reads."""
    ledger = PostgresLedger(database, listen=False)
    try:
        yield History(database, ledger, payloads)
    finally:
        await ledger.close()


class History:
    """See `LedgerReader` for the promises, which hold over live rows and archives."""

    def __init__(self, database: Database, ledger: PostgresLedger, payloads: Payloads) -> None:
        self._database = database
        self._ledger = ledger
        self._archives = Archives(database, payloads)

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        return await self._ledger.head()

    async def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Event]:
        """Give the events of a stream from a version on, in order."""
        version, head = from_version, await self._version(stream)
        live = self._live_stream(stream, from_version)
        async with aclosing(live):
            async for event in live:
                if event.stream_version != version:
                    break
                yield event
                version += 1
        if stream.execution_id is not None:
            wanted = _holding("stream_id", stream.stream_id)
            async for event in self._execution_archive(stream.scope, stream.execution_id, 1, _LAST, wanted):
                if event.stream_id == stream.stream_id and event.stream_version >= version:
                    yield event
            return
        # Versions are dense, so the live rows show by themselves whether archives hold some of the stream.
        while version <= head:
            before, rows = version, await self._archives.rows(stream.scope)
            async with aclosing(self._merged_stream(stream, version, rows)) as events:
                async for event in events:
                    if event.stream_version != version:
                        break
                    yield event
                    version += 1
            if version == before and rows == await self._archives.rows(stream.scope):
                raise _missing(stream, version, rows)

    async def read_kept(self, stream: Stream) -> AsyncIterator[Event]:
        """Give the events of a stream that are still kept, in order; those of removed archives are left out."""
        rows = await self._archives.rows(stream.scope)
        async with aclosing(self._merged_stream(stream, 1, rows)) as events:
            async for event in events:
                yield event

    async def read_execution(
        self, scope: Scope, execution_id: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of an execution by position, both bounds included."""
        position, last = from_position, _LAST if to_position is None else to_position
        async for event in self._ledger.read_execution(scope, execution_id, from_position, to_position):
            yield event
            position = event.position + 1
        wanted = _holding("execution_id", str(execution_id))
        async for event in self._execution_archive(scope, execution_id, position, last, wanted):
            if event.stream.execution_id == execution_id:
                yield event

    async def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard by position, both bounds included, of one organization or of all."""
        async for event in self._shard(shard, from_position, scope, to_position, kept=False):
            yield event

    async def read_kept_shard(
        self, shard: int, *, scope: Scope | None = None, to_position: int
    ) -> AsyncIterator[Event]:
        """Give the events of a shard that are still kept; those of removed archives are left out."""
        async for event in self._shard(shard, 1, scope, to_position, kept=True):
            yield event

    async def _shard(
        self, shard: int, from_position: int, scope: Scope | None, to_position: int | None, *, kept: bool
    ) -> AsyncIterator[Event]:
        position, last = from_position, _LAST if to_position is None else to_position
        while True:
            rows = [row for row in await self._archives.rows(scope) if row.dropped]
            gone = [row for row in rows if row.removed and row.reaches(shard, position, last)]
            if gone and not kept:
                raise not_kept(gone)
            sources = [
                (row.bounds[shard][0], self._archives.events(row, shard, position, last))
                for row in rows
                if not row.removed and row.reaches(shard, position, last)
            ]
            sources.append((position, self._live(shard, position, scope, to_position, len(rows))))
            try:
                async with aclosing(merged(sources)) as events:
                    async for event in events:
                        yield event
                        position = event.position + 1
            except _PartitionDroppedError:
                continue
            return

    async def execution_pages(
        self, scope: Scope, execution_id: int, from_position: int = 1, *, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of an execution in pages, which is quicker than one by one."""
        position = from_position
        async for page in self._ledger.execution_pages(scope, execution_id, from_position, to_position=to_position):
            yield page
            position = page[-1].position + 1
        async for page in _in_pages(self.read_execution(scope, execution_id, position, to_position)):
            yield page

    async def shard_pages(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard in pages; where archives have a part, they are merged one by one first."""
        position, last = from_position, _LAST if to_position is None else to_position
        dropped = [row for row in await self._archives.rows(scope) if row.dropped]
        if not any(row.reaches(shard, position, last) for row in dropped):
            try:
                async for page in self._live_pages(shard, position, scope, to_position, len(dropped)):
                    yield page
                    position = page[-1].position + 1
            except _PartitionDroppedError:
                pass
            else:
                return
        async for page in _in_pages(self.read_shard(shard, position, scope=scope, to_position=to_position)):
            yield page

    async def _live(
        self, shard: int, from_position: int, scope: Scope | None, to_position: int | None, dropped: int
    ) -> AsyncGenerator[Event, None]:
        async for page in self._live_pages(shard, from_position, scope, to_position, dropped):
            for event in page:
                yield event

    async def _live_pages(
        self, shard: int, from_position: int, scope: Scope | None, to_position: int | None, dropped: int
    ) -> AsyncIterator[list[Event]]:
        """Give live pages as long as no further partition is dropped: a page read after that lacks its events."""
        async for page in self._ledger.shard_pages(shard, from_position, scope=scope, to_position=to_position):
            if await self._archives.dropped(scope) != dropped:
                raise _PartitionDroppedError
            yield page
        if await self._archives.dropped(scope) != dropped:
            raise _PartitionDroppedError

    async def _execution_archive(
        self, scope: Scope, execution_id: int, from_position: int, to_position: int, wanted: bytes
    ) -> AsyncIterator[Event]:
        """Give what the archive holds after the live rows: nothing while the partition stands, since it goes whole."""
        month = partition_of(execution_id)
        if month is None:
            return
        for row in await self._archives.rows(scope, month.name):
            if row.removed:
                raise not_kept([row])
            if row.dropped:
                shard = execution_stream(scope, execution_id).shard
                found = self._archives.events(row, shard, from_position, to_position, wanted, execution_id)
                async with aclosing(found) as events:
                    async for event in events:
                        yield event

    async def _merged_stream(
        self, stream: Stream, from_version: int, rows: list[ArchiveRow]
    ) -> AsyncGenerator[Event, None]:
        wanted = _holding("stream_id", stream.stream_id)
        sources = [
            (row.bounds[stream.shard][0], self._archives.events(row, stream.shard, 1, _LAST, wanted))
            for row in rows
            if row.dropped and not row.removed and stream.shard in row.bounds
        ]
        sources.append((1, self._live_stream(stream, from_version)))
        async with aclosing(merged(sources)) as events:
            async for event in events:
                if event.stream_id == stream.stream_id and event.stream_version >= from_version:
                    yield event

    async def _live_stream(self, stream: Stream, from_version: int) -> AsyncGenerator[Event, None]:
        async for event in self._ledger.read(stream, from_version):
            yield event

    async def _version(self, stream: Stream) -> int:
        async with self._database.transaction(stream.scope) as connection:
            version = await connection.fetchval(
                "SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id
            )
        return version or 0


async def _in_pages(events: AsyncIterator[Event]) -> AsyncIterator[list[Event]]:
    page: list[Event] = []
    async for event in events:
        page.append(event)
        if len(page) == PAGE_EVENTS:
            yield page
            page = []
    if page:
        yield page


def _holding(field: str, text: str) -> bytes:
    """Return how a field with that text stands in a line of canonical JSON."""
    return f'"{field}":"{text}"'.encode()


def _missing(stream: Stream, version: int, rows: list[ArchiveRow]) -> NoetlError:
    removed = [row for row in rows if row.removed and stream.shard in row.bounds]
    if removed:
        return not_kept(removed)
    return Corrupt(f"version {version} of the stream {stream.stream_id} is in no partition and in no archive")


class _PartitionDroppedError(Exception):
    """A partition was dropped since the plan for reading was made."""
