"""Retention: archives and drops months of history that are old enough, gives up old archives, forgets expired keys.

A partition is dropped only when all its executions have ended, all its events are projected, and an archive of them
was read back whole. What stands in the way is reported, never forced.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from noetl.errors import Conflict, Corrupt, NoetlError, PayloadMissing, Unavailable
from noetl.kernel.ledger.archive.deletion import (
    blocker,
    delete_expired_keys,
    drop_partition,
    event_partitions,
    forget_streams,
)
from noetl.kernel.ledger.archive.manifest import Payloads, prove
from noetl.kernel.ledger.archive.partition import Partition, months_before
from noetl.kernel.ledger.archive.rows import ArchiveRow, archive_rows, removed_draft
from noetl.kernel.ledger.archive.writer import archive_partition
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.postgres.decisions import RowDecisions
from noetl.model.mark import Mark
from noetl.model.stream import Scope

Action = Literal["dropped", "would drop", "refused"]


class PartitionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a partition that is old enough, or why nothing was."""

    partition: str
    action: Action
    reason: str | None = None
    events: int = 0


class ArchiveOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was given up, or why it is kept."""

    scope: Scope
    partition: str
    events: int
    reason: str | None = None


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of retention did, or would do."""

    dry_run: bool
    partitions: tuple[PartitionOutcome, ...]
    removed_archives: tuple[ArchiveOutcome, ...]
    kept_archives: tuple[ArchiveOutcome, ...] = ()
    expired_keys: int
    forgotten_streams: int

    @property
    def refused(self) -> int:
        """How many partitions are old enough and stay nevertheless."""
        return sum(one.action == "refused" for one in self.partitions)


class Keeping(NamedTuple):
    """What decides about archives instead of their age alone: each says why an archive stays, or None if it may go.

    `last_look` runs in the transaction that removes an archive, which ends with it.
    """

    reason: Callable[[ArchiveRow, datetime], str | None]
    last_look: Callable[[Connection, ArchiveRow], Awaitable[str | None]]


async def ensure_partitions(database: Database, months_ahead: int) -> list[str]:
    """Make the partitions of this month and the next ones, and return their names."""
    async with database.transaction(None) as connection:
        # Taken before the statement that looks: processes that start together would all find them missing.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('noetl.event partitions'))")
        return list(await connection.fetchval("SELECT noetl.ensure_event_partitions_ahead($1)", months_ahead))


async def retain(
    database: Database,
    ledger: RowDecisions,
    payloads: Payloads,
    *,
    mint: Callable[[], int],
    keep_months: int | None,
    keep_archive_months: int | None = None,
    keeping: Keeping | None = None,
    stores: Mapping[str, Mark] | None = None,
    now: datetime,
    dry_run: bool = False,
) -> RetentionReport:
    """Bring the ledger to what shall be kept: the current month and so many whole months before it; None keeps all."""
    async with _alone(database):
        keys = await delete_expired_keys(database, dry_run=dry_run)
        outcomes = []
        for month in await _older_than(database, keep_months, now):
            reason = await blocker(database, month, stores)
            if reason is not None:
                outcomes.append(PartitionOutcome(partition=month.name, action="refused", reason=reason))
            elif dry_run:
                outcomes.append(PartitionOutcome(partition=month.name, action="would drop"))
            else:
                outcomes.append(await _drop(database, ledger, payloads, mint, month, now))
        forgotten = 0 if dry_run else await forget_streams(database)
        keeping = keeping or Keeping(lambda row, at: _young(row, at, keep_archive_months), _nobody)
        removed, kept = await _remove_archives(database, ledger, mint, keeping, now, dry_run=dry_run)
    return RetentionReport(
        dry_run=dry_run,
        partitions=tuple(outcomes),
        removed_archives=tuple(removed),
        kept_archives=tuple(kept),
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
    ledger: RowDecisions,
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


async def _nobody(connection: Connection, row: ArchiveRow) -> str | None:
    return None


def _young(row: ArchiveRow, now: datetime, keep_months: int | None) -> str | None:
    if keep_months is None:
        return "archives are kept for ever"
    return f"younger than {keep_months} months" if row.partition.ends > months_before(now, keep_months) else None


async def _remove_archives(
    database: Database,
    ledger: RowDecisions,
    mint: Callable[[], int],
    keeping: Keeping,
    now: datetime,
    *,
    dry_run: bool,
) -> tuple[list[ArchiveOutcome], list[ArchiveOutcome]]:
    async with database.transaction(None, "retention") as connection:
        rows = await archive_rows(connection)
    removed: list[ArchiveOutcome] = []
    kept: list[ArchiveOutcome] = []
    for row in rows:
        if row.dropped and not row.removed:
            reason = keeping.reason(row, now)
            if reason is None and not dry_run:
                reason = await _remove_archive(ledger, row, mint(), now, keeping)
            outcome = ArchiveOutcome(scope=row.scope, partition=row.partition.name, events=row.events, reason=reason)
            (removed if reason is None else kept).append(outcome)
    return removed, kept


async def _remove_archive(
    ledger: RowDecisions, row: ArchiveRow, event_id: int, now: datetime, keeping: Keeping
) -> str | None:
    draft = removed_draft(row.scope, row.partition.name, event_id, now)
    async with ledger.decision(row.scope) as decision:
        reason = await keeping.last_look(decision.connection, row)
        if reason is not None:
            return reason
        await decision.connection.execute(
            "UPDATE noetl.event_archive SET removed_at = $2 WHERE partition = $1", row.partition.name, now
        )
        # From here on nothing refers to the archived objects, and garbage collection takes them.
        await decision.connection.execute("DELETE FROM noetl.archive_payload WHERE partition = $1", row.partition.name)
        await decision.append(draft.stream, [draft])
    return None


@asynccontextmanager
async def _alone(database: Database) -> AsyncIterator[None]:
    connection = await database.connect("retention")
    try:
        if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended('noetl.retention', 0))"):
            raise Conflict("another process runs retention on this database", hint="let it finish, then run again")
        yield
    finally:
        await connection.close(timeout=2)
