"""The projection store in PostgreSQL: `noetl.projection` and its checkpoints, written shard by shard in one transaction.

Projectors write for all tenants. Whoever asks for an organization reads under row-level security, as that organization.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import orjson

from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import LOST, Database, bind, translated
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.kernel.projections.stores.port import (
    NOTHING_BROKEN,
    Failure,
    Page,
    PayloadPlace,
    ShardState,
    Snapshot,
    StoredRow,
    StreamChanges,
)
from noetl.kernel.projections.stores.postgres import sql
from noetl.kernel.projections.stores.postgres.broken_streams import broken_in, change_streams, held_events, write_broken
from noetl.kernel.projections.stores.postgres.held_shards import Hold
from noetl.kernel.projections.stores.postgres.row_writes import PostgresReplacement, merge_rows, save_rows, transposed
from noetl.kernel.projections.stores.postgres.view import PostgresView, checkpoints_of
from noetl.kernel.projections.stores.rows import Columns, check_folds, from_columns, same_failure, to_columns
from noetl.model.broken_stream import BrokenStream
from noetl.model.canonical import canonical_json
from noetl.model.event import Event
from noetl.model.mark import MAX_POSITION, Mark
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


class PostgresProjectionStore:
    """See `ProjectionStore` for the promises."""

    def __init__(self, database: Database, place: PayloadPlace | None = None, hold: Hold | None = None) -> None:
        """Take the database and, where its ledger's payloads are to be found by SQL, where they lie.

        With a hold, checkpoints of other shards than those it has cannot be moved.
        """
        self.database = database
        self._place = place
        self._hold = hold
        self._has_told = False
        """Whether this process has said where payloads lie."""

    def held_by(self, hold: Hold) -> PostgresProjectionStore:
        """Return the same store, whose checkpoints move only while the hold says so."""
        return PostgresProjectionStore(self.database, self._place, hold)

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard is projected."""
        async with self.database.transaction(None) as connection:
            return await checkpoints_of(connection)

    async def load_projections(self, keys: Sequence[RowKey]) -> list[FoldedRow]:
        """Return the stored rows among these."""
        if not keys:
            return []
        async with self.database.transaction(None, "projector") as connection:
            rows = await connection.fetch(sql.LOAD, *transposed(keys))
        return [from_columns(row).folded for row in rows]

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
        columns = list(map(to_columns, rows))
        try:
            return await self._save(shard, after, upto, columns, events, folds, streams, new=True)
        except asyncpg.UniqueViolationError:
            # Something of this batch is there already, of another shard or of an earlier life of this one.
            return await self._save(shard, after, upto, columns, events, folds, streams, new=False)

    async def _save(
        self,
        shard: int,
        after: int,
        upto: int,
        columns: list[Columns],
        events: Sequence[Event],
        folds: Mapping[str, int] | None,
        streams: StreamChanges,
        *,
        new: bool,
    ) -> bool:
        with suppress(_OvertakenError):
            async with self.database.transaction(None, "projector") as connection:
                checkpoint = await connection.fetchrow(sql.LOCK, shard)
                if checkpoint is None or checkpoint["position"] != after:
                    raise _OvertakenError
                made_by = checkpoint["folds"]
                check_folds(shard, None if made_by is None else orjson.loads(made_by), folds)
                if not await change_streams(connection, shard, streams):
                    raise _OvertakenError
                written = await (save_rows(connection, columns, after) if new else merge_rows(connection, columns))
                if written != len(columns):
                    raise _OvertakenError
                if self._place is not None and not self._has_told:
                    await connection.execute(sql.PLACE, *self._place)
                reach("project.after_rows")
                if self._hold is not None:
                    # Last before the move: what is locked here keeps the shard from being handed over.
                    await self._hold.check(connection, shard)
                    await self._hold.moving(connection, shard, upto, events)
                await connection.execute(sql.MOVE, shard, upto, _json(folds))
                reach("project.before_commit")
            reach("project.after_commit")
            self._has_told = True
            return True
        return False

    @asynccontextmanager
    async def replacing(self, shard: int) -> AsyncIterator[PostgresReplacement]:
        """Build a shard anew in one transaction."""
        connection = await self.database.connect("projector")
        try:
            replacement = PostgresReplacement(connection, shard)
            await replacement.begin()
            yield replacement
            await replacement.end()
        finally:
            with suppress(*LOST):
                await connection.close(timeout=5)

    async def record_failure(self, shard: int, after: int, failure: Failure) -> None:
        """Note why a shard stands still at a checkpoint."""
        async with self.database.transaction(None, "projector") as connection:
            row = await connection.fetchrow(sql.FAILURE, shard, after)
            if row is None or (row["failure"] is not None and same_failure(_failure(row["failure"]), failure)):
                return
            if self._hold is not None:
                await self._hold.check(connection, shard)
            dated = msgspec.structs.replace(failure, since=failure.since or datetime.now(UTC))
            await connection.execute(sql.SET_FAILURE, shard, msgspec.json.encode(dated).decode())

    async def scopes(self) -> list[Scope]:
        """Return every organization that has rows here."""
        async with self.database.transaction(None, "projector") as connection:
            return [Scope(*row) for row in await connection.fetch(sql.SCOPES)]

    async def shard_states(self) -> list[ShardState]:
        """Return the state of every shard."""
        async with self.database.transaction(None, "projector") as connection:
            rows = await connection.fetch(sql.SHARDS)
        return [
            ShardState(
                shard=row["shard"],
                position=row["position"],
                rows=row["rows"],
                updated_at=row["updated_at"],
                failure=None if row["failure"] is None else _failure(row["failure"]),
            )
            for row in rows
        ]

    async def broken_streams(self, shard: int | None = None) -> list[BrokenStream]:
        """Return the streams that stand still while their shard goes on."""
        async with self.database.transaction(None, "projector") as connection:
            return await broken_in(connection, shard)

    async def fold_anew(self, broken: BrokenStream, positions: Sequence[int]) -> None:
        """Forget the rows of a stream, whose events have these positions, and let projectors fold it from the first on."""
        async with self.database.transaction(None, "projector") as connection:
            checkpoint = await connection.fetchrow(sql.LOCK, broken.shard)
            if checkpoint is not None and broken.position <= checkpoint["position"]:
                await connection.execute(
                    sql.FORGET_ROWS, broken.shard, broken.tenant_id, broken.organization_id, list(positions)
                )
                await write_broken(connection, [broken])

    def held_events(self, broken: BrokenStream) -> AsyncIterator[Event]:
        """Give the events that a broken stream has kept back."""
        return held_events(self.database, broken)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Record a snapshot."""
        async with self.database.transaction(None, "projector") as connection:
            await connection.execute(
                sql.SAVE_SNAPSHOT,
                snapshot.scope.tenant_id,
                snapshot.scope.organization_id,
                snapshot.aggregate_type,
                snapshot.aggregate_id,
                snapshot.version,
                _json(snapshot.fold_versions),
                snapshot.upcaster_digest,
                snapshot.payload_root,
                snapshot.encryption_context,
                snapshot.checksum,
                msgspec.json.encode(snapshot.payload_ref).decode(),
                snapshot.payload_ref.sha256,
            )

    async def load_snapshots(
        self, scope: Scope, aggregate_type: str, aggregate_id: str, upto: int | None = None
    ) -> list[Snapshot]:
        """Return the snapshots at or before a version, the newest first."""
        last = MAX_POSITION if upto is None else upto
        async with self.database.transaction(scope) as connection:
            rows = await connection.fetch(sql.LOAD_SNAPSHOTS, aggregate_type, aggregate_id, last)
        return [
            Snapshot(
                scope=scope,
                aggregate_type=aggregate_type,
                aggregate_id=aggregate_id,
                version=row["version"],
                fold_versions=orjson.loads(row["fold_versions"]),
                upcaster_digest=row["upcaster_digest"],
                payload_root=row["payload_root"],
                encryption_context=row["encryption_context"],
                checksum=row["checksum"],
                payload_ref=msgspec.json.decode(row["payload_ref"], type=PayloadRef),
                created_at=row["created_at"],
            )
            for row in rows
        ]

    async def prune_snapshots(self, scope: Scope, aggregate_type: str, aggregate_id: str, keep: int) -> None:
        """Forget all but the newest snapshots."""
        async with self.database.transaction(None, "projector") as connection:
            await connection.execute(
                sql.PRUNE_SNAPSHOTS, scope.tenant_id, scope.organization_id, aggregate_type, aggregate_id, keep
            )

    @asynccontextmanager
    async def snapshot_view(self, scope: Scope) -> AsyncIterator[PostgresView]:
        """Give an organization's projections as they are at one moment."""
        pool = await self.database.pool()
        with translated():
            connection = await pool.acquire()
        try:
            transaction = connection.transaction(isolation="repeatable_read", readonly=True)
            with translated():
                await transaction.start()
                # Nobody waits for a reader, and whoever compares a long history with it takes the time it takes.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                await bind(connection, scope)
            try:
                yield PostgresView(connection)
            finally:
                with suppress(*LOST):
                    await transaction.rollback()
        finally:
            await pool.release(connection)

    async def query(
        self, scope: Scope, projection: str, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncGenerator[StoredRow, None]:
        """Give the rows of a projection in an organization."""
        async with self.snapshot_view(scope) as view, aclosing(view.query(projection, filters, page)) as rows:
            async for row in rows:
                yield row


class _OvertakenError(Exception):
    """Another projector was faster: undo, and tell the caller to fold anew."""


def _json(value: object) -> str | None:
    return None if value is None else canonical_json(value).decode()


def _failure(text: str) -> Failure:
    return msgspec.json.decode(text, type=Failure)
