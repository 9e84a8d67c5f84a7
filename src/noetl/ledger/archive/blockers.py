"""Finds the partitions of the ledger and says for each what keeps it from being dropped. Only reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from noetl.ledger.archive.partition import Partition, partition_named
from noetl.ledger.database import Database
from noetl.model.catalogue import ENDING
from noetl.model.mark import Mark

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
