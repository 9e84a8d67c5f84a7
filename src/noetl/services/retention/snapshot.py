"""The rows of an organization that a plan is made from, read at one moment together with the policy and the pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from noetl.kernel.ledger.postgres.database import Database, bind, translated
from noetl.model.stream import Scope
from noetl.services.retention.facts import Generation
from noetl.services.retention.history_rows import SWEPT_KINDS, counted
from noetl.services.retention.pins import Pin, pins_stream, read_pins, read_policy, stream_version
from noetl.services.retention.plan import Kind, Line, Sweep
from noetl.services.retention.policy import Policy, effective
from noetl.services.retention.recorded_facts import OpenTask, read_generations, read_inputs, read_open_tasks

_PURGED: Final = """
SELECT r.dataset_version::text AS dataset_version, g.storage_location AS location, g.generation::text AS generation,
       r.files_removed_at IS NOT NULL AS done
FROM noetl.retired_generation AS r JOIN noetl.dataset_version AS g USING (tenant_id, organization_id, dataset_version)
WHERE r.purged_at IS NOT NULL
"""
_TRIMMED: Final = """
SELECT t.dataset_version::text AS dataset_version, g.storage_location AS location,
       array_agg(t.partition_key ORDER BY t.partition_key, t.version) AS keys,
       array_agg(t.version ORDER BY t.partition_key, t.version) AS versions
FROM noetl.trimmed_version AS t JOIN noetl.dataset_version AS g USING (tenant_id, organization_id, dataset_version)
LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
WHERE t.files_removed_at IS NULL AND r.purged_at IS NULL GROUP BY 1, 2
"""
_STREAMS: Final = (
    "SELECT substring(stream_id FROM 5) AS dag, version FROM noetl.stream WHERE starts_with(stream_id, 'dag/')"
)
# Of a generation that appends, the last version of a partition names all files of those before.
_EXPECTED: Final = """
SELECT p.dataset_version::text AS dataset_version, sum(p.files)::bigint AS files FROM noetl.partition_version AS p
JOIN noetl.dataset_version AS g USING (tenant_id, organization_id, dataset_version)
LEFT JOIN noetl.trimmed_version AS t USING (tenant_id, organization_id, dataset_version, partition_key, version)
WHERE NOT p.dropped AND t.files_removed_at IS NULL AND (p.current OR NOT EXISTS (
    SELECT FROM noetl.job AS j WHERE j.generation = g.generation AND j.update_strategy = 'append'))
GROUP BY 1
"""


class Seen(msgspec.Struct, kw_only=True):
    """What the rows said at one moment."""

    now: datetime
    policy: Policy
    pins: list[Pin]
    pins_version: int
    dag_versions: dict[str, int]
    tasks: list[OpenTask]
    inputs: list[tuple[str, str, str, int]]
    generations: tuple[Generation, ...]
    purged: list[Any]
    trimmed: list[Any]
    expected: dict[str, int]
    """How many files each generation names, if no two versions share one beyond what appending does."""
    lines: list[Line]
    sweeps: list[Sweep]


async def look(
    database: Database, scope: Scope, kinds: Sequence[Kind], defaults: Mapping[str, Any], changes: Mapping[str, Any]
) -> Seen:
    """Read everything as it is now; `changes` replace parts of the policy."""
    pool = await database.pool()
    with translated():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")
            await bind(connection, scope)
            now = await connection.fetchval("SELECT clock_timestamp()")
            policy = effective({**defaults, **await read_policy(connection)}, changes)
            tasks = await read_open_tasks(connection)
            lines: list[Line] = []
            sweeps: list[Sweep] = []
            for kind in (one for one in SWEPT_KINDS if one in kinds):
                told, sweep = await counted(connection, kind, policy, now)
                lines += told
                sweeps += [] if sweep is None else [sweep]
            return Seen(
                now=now,
                policy=policy,
                pins=await read_pins(connection),
                pins_version=await stream_version(connection, pins_stream(scope)),
                dag_versions={row["dag"]: row["version"] for row in await connection.fetch(_STREAMS)},
                tasks=tasks,
                inputs=await read_inputs(connection),
                generations=await read_generations(connection, scope, now, tasks),
                purged=await connection.fetch(_PURGED),
                trimmed=await connection.fetch(_TRIMMED),
                expected={row["dataset_version"]: row["files"] for row in await connection.fetch(_EXPECTED)},
                lines=lines,
                sweeps=sweeps,
            )
