"""The projection store in memory: for tests and simulation only, held to the same contract as the one in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from noetl.errors import InputError
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.kernel.projections.stores.port import (
    NOTHING_BROKEN,
    Failure,
    Page,
    Replaced,
    ShardState,
    Snapshot,
    StoredRow,
    StreamChanges,
)
from noetl.kernel.projections.stores.rows import (
    Columns,
    check_folds,
    check_query,
    from_columns,
    same_failure,
    same_places,
    to_columns,
)
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Event
from noetl.model.mark import MAX_POSITION, Mark
from noetl.model.stream import SHARD_COUNT, Scope, Stream

_Rows = dict[RowKey, Columns]
_EXECUTION, _SHARD, _STATUS = 4, 5, 9


class MemoryProjectionStore:
    """See `ProjectionStore` for the promises; this one forgets everything with its process."""

    def __init__(self) -> None:
        self._rows: _Rows = {}
        self._snapshots: dict[tuple[Scope, str, str, int], Snapshot] = {}
        self._positions = [0] * SHARD_COUNT
        self._folds: list[dict[str, int] | None] = [None] * SHARD_COUNT
        self._failures: list[Failure | None] = [None] * SHARD_COUNT
        self._updated = [datetime.now(UTC)] * SHARD_COUNT
        self._broken: dict[Stream, BrokenStream] = {}
        self._held: dict[tuple[int, int], Event] = {}
        self._locks = [asyncio.Lock() for _ in range(SHARD_COUNT)]

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard is projected."""
        return Mark(self._positions)

    async def load_projections(self, keys: Sequence[RowKey]) -> list[FoldedRow]:
        """Return the stored rows among these."""
        return [from_columns(self._rows[key]).folded for key in dict.fromkeys(keys) if key in self._rows]

    async def save_projections(
        self,
        shard: int,
        after: int,
        upto: int,
        rows: Sequence[FoldedRow],
        events: Sequence[Event],
        folds: Mapping[str, int] | None = None,
        streams: StreamChanges = NOTHING_BROKEN,
    ) -> bool:
        """Write rows and broken streams and move the checkpoint, all or nothing."""
        async with self._locks[shard]:
            if self._positions[shard] != after:
                return False
            check_folds(shard, self._folds[shard], folds)
            given = {row.key: to_columns(row) for row in rows}
            if any(key in self._rows and self._rows[key][_SHARD] != shard for key in given):
                return False
            if not same_places(await self.broken_streams(shard), streams.known):
                return False
            self._change(shard, streams.broken, streams.mended)
            self._held.update({(shard, event.position): event for event in streams.held})
            self._rows.update(given)
            self._move(shard, upto, folds)
            return True

    @asynccontextmanager
    async def replacing(self, shard: int) -> AsyncIterator[MemoryReplacement]:
        """Build a shard anew."""
        async with self._locks[shard]:
            replacement = MemoryReplacement(self, shard)
            yield replacement
            replacement.end()

    async def record_failure(self, shard: int, after: int, failure: Failure) -> None:
        """Note why a shard stands still at a checkpoint."""
        known = self._failures[shard]
        if self._positions[shard] == after and (known is None or not same_failure(known, failure)):
            since = failure.since or datetime.now(UTC)
            self._failures[shard] = msgspec.structs.replace(failure, since=since)

    async def shard_states(self) -> list[ShardState]:
        """Return the state of every shard."""
        shards = [columns[_SHARD] for columns in self._rows.values()]
        return [
            ShardState(shard, position, shards.count(shard), self._updated[shard], self._failures[shard])
            for shard, position in enumerate(self._positions)
        ]

    async def broken_streams(self, shard: int | None = None) -> list[BrokenStream]:
        """Return the streams that stand still while their shard goes on."""
        found = [one for one in self._broken.values() if shard in (None, one.shard)]
        return sorted(found, key=lambda one: (one.shard, one.position, one.stream_id))

    async def held_events(self, broken: BrokenStream) -> AsyncIterator[Event]:
        """Give the events that a broken stream has kept back."""
        for shard, position in sorted(self._held):
            event = self._held[shard, position]
            if event.stream.root == broken.stream and position >= broken.position:
                yield event

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Record a snapshot."""
        key = (snapshot.scope, snapshot.aggregate_type, snapshot.aggregate_id, snapshot.version)
        self._snapshots.setdefault(key, msgspec.structs.replace(snapshot, created_at=datetime.now(UTC)))

    async def load_snapshots(
        self, scope: Scope, aggregate_type: str, aggregate_id: str, upto: int | None = None
    ) -> list[Snapshot]:
        """Return the snapshots at or before a version, the newest first."""
        last = MAX_POSITION if upto is None else upto
        found = [
            snapshot
            for (*name, version), snapshot in self._snapshots.items()
            if name == [scope, aggregate_type, aggregate_id] and version <= last
        ]
        return sorted(found, key=lambda snapshot: snapshot.version, reverse=True)

    async def prune_snapshots(self, scope: Scope, aggregate_type: str, aggregate_id: str, keep: int) -> None:
        """Forget all but the newest snapshots."""
        for snapshot in (await self.load_snapshots(scope, aggregate_type, aggregate_id))[keep:]:
            del self._snapshots[scope, aggregate_type, aggregate_id, snapshot.version]

    @asynccontextmanager
    async def snapshot_view(self, scope: Scope) -> AsyncIterator[MemoryView]:
        """Give an organization's projections as they are at one moment."""
        wanted = (scope.tenant_id, scope.organization_id)
        own = {key: columns for key, columns in self._rows.items() if key[:2] == wanted}
        broken = [one for one in await self.broken_streams() if one.scope == scope]
        yield MemoryView(own, Mark(self._positions), broken)

    async def query(
        self, scope: Scope, projection: str, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncIterator[StoredRow]:
        """Give the rows of a projection in an organization."""
        async with self.snapshot_view(scope) as view:
            async for row in view.query(projection, filters, page):
                yield row

    def _change(self, shard: int, broken: Sequence[BrokenStream], mended: Sequence[Stream]) -> None:
        for stream in mended:
            del self._broken[stream]
        for one in broken:
            known = self._broken.get(one.stream)
            since = known.since if known is not None and known.position == one.position else datetime.now(UTC)
            self._broken[one.stream] = msgspec.structs.replace(one, since=since)
        self._held = {
            place: event
            for place, event in self._held.items()
            if place[0] != shard
            or (event.stream.root in self._broken and place[1] >= self._broken[event.stream.root].position)
        }

    def _move(self, shard: int, upto: int, folds: Mapping[str, int] | None) -> None:
        self._positions[shard] = upto
        self._folds[shard] = self._folds[shard] if folds is None else dict(folds)
        self._failures[shard] = None
        self._updated[shard] = datetime.now(UTC)


class MemoryReplacement:
    """See `Replacement` for the promises."""

    def __init__(self, store: MemoryProjectionStore, shard: int) -> None:
        self._store = store
        self._shard = shard
        self._rows: _Rows = {}
        self._finished: tuple[int, Mapping[str, int]] | None = None
        self._broken: Sequence[BrokenStream] = ()

    async def put(self, rows: Sequence[FoldedRow]) -> None:
        """Add rows."""
        self._rows.update({row.key: to_columns(row) for row in rows})

    async def finish(self, upto: int, folds: Mapping[str, int], broken: Sequence[BrokenStream] = ()) -> Replaced:
        """Put what was added in the place of everything the shard had."""
        old = {key: columns for key, columns in self._store._rows.items() if columns[_SHARD] == self._shard}
        elsewhere = [key for key in self._rows if key in self._store._rows and key not in old]
        if elsewhere:
            raise InputError(f"row {elsewhere[0].row_id!r} of {elsewhere[0].projection} is made from two shards")
        self._finished, self._broken = (upto, folds), broken
        return Replaced(
            before=len(old),
            after=len(self._rows),
            changed=sum(old[key] != self._rows[key] for key in old.keys() & self._rows.keys()),
            added=len(self._rows.keys() - old.keys()),
            removed=len(old.keys() - self._rows.keys()),
        )

    def end(self) -> None:
        """Make what was finished visible."""
        if self._finished is None:
            return
        store, shard = self._store, self._shard
        kept = {key: columns for key, columns in store._rows.items() if columns[_SHARD] != shard}
        store._rows = kept | self._rows
        known = [one.stream for one in store._broken.values() if one.shard == shard]
        store._change(
            shard, self._broken, [stream for stream in known if stream not in {one.stream for one in self._broken}]
        )
        store._move(shard, *self._finished)


class MemoryView:
    """Projections as they were when the view was opened."""

    def __init__(self, rows: _Rows, checkpoints: Mark, broken: Sequence[BrokenStream]) -> None:
        self._rows = rows
        self._checkpoints = checkpoints
        self._broken = list(broken)

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard was projected."""
        return self._checkpoints

    async def broken_streams(self) -> list[BrokenStream]:
        """Return the streams that stood still."""
        return self._broken

    async def query(
        self, projection: str | None = None, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncIterator[StoredRow]:
        """Give rows by projection and row id."""
        wanted = check_query(projection, filters, page)
        left = page.limit if page is not None else len(self._rows)
        for key in sorted(self._rows, key=lambda key: [part.encode() for part in key]):
            columns = self._rows[key]
            if (
                left > 0
                and projection in (None, key.projection)
                and (page is None or page.after is None or key.row_id.encode() > page.after.encode())
                and wanted.get("execution_id", columns[_EXECUTION]) == columns[_EXECUTION]
                and wanted.get("status", columns[_STATUS]) == columns[_STATUS]
            ):
                left -= 1
                yield from_columns(columns)
