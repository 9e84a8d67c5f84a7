"""What retention deletes, in small steps: expired keys, archived partitions, heads of streams; and what prevents it.

`blockers` only reads: it says for each partition what keeps it from being dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg
import msgspec

from noetl.errors import Conflict
from noetl.kernel.ledger.archive.partition import Partition, partition_named
from noetl.kernel.ledger.archive.rows import archive_rows
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.catalogue import ENDING
from noetl.model.mark import Mark

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


_TABLES = """
SELECT c.relname AS name, c.reltuples::bigint AS events, pg_total_relation_size(c.oid) AS bytes
FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'noetl.event'::regclass AND c.relname <> 'event_root' ORDER BY c.relname
"""

_OPEN = """
SELECT count(*) AS executions, min(execution_id) AS first FROM (
    SELECT execution_id FROM noetl.event WHERE execution_id >= $1 AND execution_id < $2
    GROUP BY tenant_id, organization_id, execution_id
    -- What belongs to no run, as the slots of schedules, has no end either.
    HAVING bool_or(starts_with(stream_id, 'execution/')) AND NOT bool_or(event_type = ANY ($3))
) AS open
"""

_KEYS = """
SELECT count(*) AS keys, max(expires_at) AS until FROM noetl.idempotency_key
WHERE execution_id >= $1 AND execution_id < $2 AND expires_at > now()
"""

_HELD = """
SELECT e.shard, max(e.position) AS last, c.position FROM noetl.event AS e
JOIN noetl.projection_checkpoint AS c ON c.shard = e.shard
WHERE e.execution_id >= $1 AND e.execution_id < $2 GROUP BY e.shard, c.position ORDER BY e.shard
"""


class PartitionTable(msgspec.Struct, frozen=True):
    """A month that has a table: about how many events it holds, None if never counted, and its size on disk."""

    partition: Partition
    events: int | None
    bytes: int


async def partition_tables(database: Database) -> list[PartitionTable]:
    """Describe the months that have a table, oldest first."""
    async with database.transaction(None, "retention") as connection:
        rows = await connection.fetch(_TABLES)
    return [
        PartitionTable(partition_named(row["name"]), None if row["events"] < 0 else row["events"], row["bytes"])
        for row in rows
    ]


async def event_partitions(database: Database) -> list[Partition]:
    """Return the months that have a table, oldest first; the partition of root ids is not among them."""
    return [table.partition for table in await partition_tables(database)]


async def blocker(database: Database, month: Partition, stores: Mapping[str, Mark] | None = None) -> str | None:
    """Return why a partition must stay, or None if it may be archived and dropped.

    `stores` says up to where projection stores beside the default one have come.
    """
    bounds = (month.first_id, month.end_id)
    async with database.transaction(None, "retention") as connection:
        running = await connection.fetchrow(_OPEN, *bounds, sorted(ENDING))
        keys = await connection.fetchrow(_KEYS, *bounds)
        held = await connection.fetch(_HELD, *bounds)
    assert running is not None
    assert keys is not None
    if running["executions"]:
        many = running["executions"] > 1
        count = f"{running['executions']} executions have" if many else "1 execution has"
        return f"{count} not ended ({'the first is ' if many else ''}{running['first']})"
    if keys["keys"]:
        return f"{keys['keys']} idempotency keys are valid until {keys['until']:%Y-%m-%d %H:%M} UTC at most"
    for row in held:
        reached = {"": row["position"]} | {
            f" of store {name}": mark.positions[row["shard"]] for name, mark in (stores or {}).items()
        }
        for store, position in reached.items():
            if position < row["last"]:
                return f"shard {row['shard']}{store} is projected up to {position} and must get to {row['last']}"
    return None
