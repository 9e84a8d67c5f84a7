"""Retention: archives and drops months of history that are old enough, gives up old archives, forgets expired keys.

A partition is dropped only when all its executions have ended, all its events are projected, and an archive of them
was read back whole. What stands in the way is reported, never forced.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal

import msgspec

from noetl.errors import Conflict, Corrupt, NoetlError, PayloadMissing, Unavailable
from noetl.ledger.archive.blockers import blocker, event_partitions
from noetl.ledger.archive.dropping import delete_expired_keys, drop_partition, forget_streams
from noetl.ledger.archive.events import removed_draft
from noetl.ledger.archive.manifest import Payloads, prove
from noetl.ledger.archive.partition import Partition, months_before
from noetl.ledger.archive.rows import ArchiveRow, archive_rows
from noetl.ledger.archive.writing import archive_partition
from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.model.stream import Scope

Action = Literal["dropped", "would drop", "refused"]


class PartitionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a partition that is old enough, or why nothing was."""

    partition: str
    action: Action
    reason: str | None = None
    events: int = 0


class ArchiveOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was given up."""

    scope: Scope
    partition: str
    events: int


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of retention did, or would do."""

    dry_run: bool
    partitions: tuple[PartitionOutcome, ...]
    removed_archives: tuple[ArchiveOutcome, ...]
    expired_keys: int
    forgotten_streams: int

    @property
    def refused(self) -> int:
        """How many partitions are old enough and stay nevertheless."""
        return sum(one.action == "refused" for one in self.partitions)


async def ensure_partitions(database: Database, months_ahead: int) -> list[str]:
    """Make the partitions of this month and the next ones, and return their names."""
    async with database.transaction(None) as connection:
        return list(await connection.fetchval("SELECT noetl.ensure_event_partitions_ahead_v1($1)", months_ahead))


async def retain(
    database: Database,
    ledger: PostgresLedger,
    payloads: Payloads,
    *,
    mint: Callable[[], int],
    keep_months: int | None,
    keep_archive_months: int | None = None,
    now: datetime,
    dry_run: bool = False,
) -> RetentionReport:
    """Bring the ledger to what shall be kept: the current month and so many whole months before it; None keeps all."""
    async with _alone(database):
        keys = await delete_expired_keys(database, dry_run=dry_run)
        outcomes = []
        for month in await _older_than(database, keep_months, now):
            reason = await blocker(database, month)
            if reason is not None:
                outcomes.append(PartitionOutcome(partition=month.name, action="refused", reason=reason))
            elif dry_run:
                outcomes.append(PartitionOutcome(partition=month.name, action="would drop"))
            else:
                outcomes.append(await _drop(database, ledger, payloads, mint, month, now))
        forgotten = 0 if dry_run else await forget_streams(database)
        removed = await _remove_archives(database, ledger, mint, keep_archive_months, now, dry_run=dry_run)
    return RetentionReport(
        dry_run=dry_run,
        partitions=tuple(outcomes),
        removed_archives=tuple(removed),
        expired_keys=keys,
        forgotten_streams=forgotten,
    )


async def _older_than(database: Database, keep_months: int | None, now: datetime) -> list[Partition]:
    if keep_months is None:
        return []
    oldest_kept = months_before(now, keep_months)
    return [month for month in await event_partitions(database) if month.ends <= oldest_kept]


async def _drop(
    database: Database,
    ledger: PostgresLedger,
    payloads: Payloads,
    mint: Callable[[], int],
    month: Partition,
    now: datetime,
) -> PartitionOutcome:
    try:
        await archive_partition(database, ledger, payloads, month.name, mint=mint, now=now)
        try:
            await _prove(database, payloads, month)
        except (PayloadMissing, Corrupt):
            # The events still stand in the table, so a damaged archive is simply written again.
            await archive_partition(database, ledger, payloads, month.name, mint=mint, now=now, again=True)
            await _prove(database, payloads, month)
        dropped = await drop_partition(database, month)
    except Unavailable:
        raise
    except NoetlError as problem:
        return PartitionOutcome(partition=month.name, action="refused", reason=problem.message)
    return PartitionOutcome(partition=month.name, action="dropped", events=dropped)


async def _prove(database: Database, payloads: Payloads, month: Partition) -> None:
    async with database.transaction(None, "retention") as connection:
        rows = await archive_rows(connection, month.name)
    for row in rows:
        await prove(payloads, row.scope, await row.manifest(payloads))


async def _remove_archives(
    database: Database,
    ledger: PostgresLedger,
    mint: Callable[[], int],
    keep_archive_months: int | None,
    now: datetime,
    *,
    dry_run: bool,
) -> list[ArchiveOutcome]:
    if keep_archive_months is None:
        return []
    oldest_kept = months_before(now, keep_archive_months)
    async with database.transaction(None, "retention") as connection:
        rows = await archive_rows(connection)
    removed = []
    for row in rows:
        if row.dropped and not row.removed and row.partition.ends <= oldest_kept:
            if not dry_run:
                await _remove_archive(ledger, row, mint(), now)
            removed.append(ArchiveOutcome(scope=row.scope, partition=row.partition.name, events=row.events))
    return removed


async def _remove_archive(ledger: PostgresLedger, row: ArchiveRow, event_id: int, now: datetime) -> None:
    draft = removed_draft(row.scope, row.partition.name, event_id, now)
    async with ledger.decision(row.scope) as decision:
        await decision.connection.execute(
            "UPDATE noetl.event_archive SET removed_at = $2 WHERE partition = $1", row.partition.name, now
        )
        # From here on nothing refers to the archived objects, and garbage collection takes them.
        await decision.connection.execute("DELETE FROM noetl.archive_payload WHERE partition = $1", row.partition.name)
        await decision.append(draft.stream, [draft])


@asynccontextmanager
async def _alone(database: Database) -> AsyncIterator[None]:
    connection = await database.connect("retention")
    try:
        if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended('noetl.retention', 0))"):
            raise Conflict("another process runs retention on this database", hint="let it finish, then run again")
        yield
    finally:
        await connection.close(timeout=2)
