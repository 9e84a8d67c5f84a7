"""The archives of a ledger as a reader sees them: which exist, and their events, merged by position.

The merge holds one event of each source and opens a source when its turn comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from heapq import heapify, heappop, heappush

from noetl.kernel.ledger.archive.manifest import Manifest, Payloads, archived_events
from noetl.kernel.ledger.archive.rows import ArchiveRow, archive_rows
from noetl.kernel.ledger.postgres.database import Database, Role
from noetl.model.event import Event
from noetl.model.stream import Scope

_MANIFESTS = 32


class Archives:
    """Reads archives of one organization, or of all where scope is None; keeps a few manifests, which never change."""

    def __init__(self, database: Database, payloads: Payloads) -> None:
        self._database = database
        self._payloads = payloads
        self._manifests: dict[tuple[Scope, str], Manifest] = {}

    async def rows(self, scope: Scope | None, partition: str | None = None) -> list[ArchiveRow]:
        """Return what is archived, of one partition or of all, oldest first."""
        async with self._database.transaction(scope, _role(scope)) as connection:
            return await archive_rows(connection, partition)

    async def dropped(self, scope: Scope | None) -> int:
        """Return how many of the rows are dropped: a cheap way to see that one more is."""
        async with self._database.transaction(scope, _role(scope)) as connection:
            return int(await connection.fetchval("SELECT count(dropped_at) FROM noetl.event_archive"))

    async def events(
        self,
        row: ArchiveRow,
        shard: int,
        from_position: int,
        to_position: int,
        wanted: bytes = b"",
        execution_id: int | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Give archived events of a shard, opening only objects that can hold some of those asked for."""
        for found in (await self._manifest(row)).objects:
            if found.shard != shard or found.last_position < from_position or found.first_position > to_position:
                continue
            held = range(int(found.first_execution_id), int(found.last_execution_id) + 1)
            if execution_id is not None and execution_id not in held:
                continue
            async with aclosing(archived_events(self._payloads, row.scope, found, wanted)) as events:
                async for event in events:
                    if from_position <= event.position <= to_position:
                        yield event

    async def _manifest(self, row: ArchiveRow) -> Manifest:
        key = (row.scope, row.manifest_ref.sha256)
        if key not in self._manifests:
            while len(self._manifests) >= _MANIFESTS:
                del self._manifests[next(iter(self._manifests))]
            self._manifests[key] = await row.manifest(self._payloads)
        return self._manifests[key]


def _role(scope: Scope | None) -> Role:
    return "projector" if scope is None else "runtime"


async def merged(sources: Sequence[tuple[int, AsyncGenerator[Event, None]]]) -> AsyncGenerator[Event, None]:
    """Give the events of one shard by position; each source comes with a bound that none of its events is below."""
    heap: list[tuple[int, int, Event | None]] = [(bound, number, None) for number, (bound, _) in enumerate(sources)]
    heapify(heap)
    try:
        while heap:
            _, number, event = heappop(heap)
            if event is not None:
                yield event
            following = await anext(sources[number][1], None)
            if following is not None:
                heappush(heap, (following.position, number, following))
    finally:
        for _, source in sources:
            await source.aclose()
