"""What retention deletes from the database, each in small steps: expired keys, archived partitions, heads of streams."""

from __future__ import annotations

import asyncio

import asyncpg

from noetl.errors import Conflict
from noetl.ledger.archive.partition import Partition
from noetl.ledger.archive.rows import archive_rows
from noetl.ledger.database import Database
from noetl.model.catalogue import ENDING

_STEP = 10_000
_WAITS = (0.2, 0.5, 1.0, 2.0)

_DELETE_KEYS = """
DELETE FROM noetl.idempotency_key WHERE (tenant_id, organization_id, key) IN (
    SELECT tenant_id, organization_id, key FROM noetl.idempotency_key WHERE expires_at < now() LIMIT $1)
"""


async def delete_expired_keys(database: Database, *, dry_run: bool) -> int:
    """Delete idempotency keys that have run out, and return how many those are."""
    if dry_run:
        async with database.transaction(None, "retention") as connection:
            count = await connection.fetchval("SELECT count(*) FROM noetl.idempotency_key WHERE expires_at < now()")
            return int(count)
    total = 0
    while True:
        async with database.transaction(None, "retention") as connection:
            deleted = int((await connection.execute(_DELETE_KEYS, _STEP)).split()[1])
        total += deleted
        if deleted < _STEP:
            return total


async def drop_partition(database: Database, month: Partition) -> int:
    """Drop a partition whose events are all archived, and return how many events it held; Conflict if it must stay."""
    for wait in (*_WAITS, None):
        try:
            async with database.transaction(None, "retention") as connection:
                return int(
                    await connection.fetchval("SELECT noetl.drop_event_partition($1, $2)", month.name, sorted(ENDING))
                )
        except asyncpg.ObjectInUseError as problem:
            raise Conflict(str(problem)) from problem
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as problem:
            if wait is None:
                raise Conflict(
                    f"readers and writers leave no moment to drop {month.name}; try again later"
                ) from problem
            await asyncio.sleep(wait)
    raise AssertionError("the last try returns or raises")


async def forget_streams(database: Database) -> int:
    """Delete the heads of streams whose executions stand in dropped partitions, and return how many those are."""
    async with database.transaction(None, "retention") as connection:
        names = sorted({row.partition.name for row in await archive_rows(connection) if row.dropped})
    total = 0
    for name in names:
        forgotten = _STEP
        while forgotten == _STEP:
            async with database.transaction(None, "retention") as connection:
                forgotten = await connection.fetchval("SELECT noetl.forget_streams($1, $2)", name, _STEP)
            total += forgotten
    return total
