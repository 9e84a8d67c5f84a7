"""Rows that are written together with events, compared with them: stream heads, shard heads, keys and archives.

Each query counts one whole set inside the server, in one statement and so from one moment, and gives only what differs.
"""

from __future__ import annotations

from typing import Any, Final

from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.replay.report import Difference
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope

SHOWN: Final = 10

# Versions of a stream are dense from 1. Where a partition was dropped, its executions' streams are gone as a whole, and
# streams that outlive executions may lack some of their events here; of these only the order can be checked.
_STREAMS: Final = f"""
WITH dropped AS (
    SELECT first_execution_id, last_execution_id FROM noetl.event_archive WHERE dropped_at IS NOT NULL
), heads AS (
    SELECT stream_id, version, execution_id FROM noetl.stream
    WHERE version > 0 AND ($1::bigint IS NULL OR execution_id = $1)
), counted AS (
    SELECT stream_id, count(*) AS events, min(stream_version) AS first, max(stream_version) AS last
    FROM noetl.known_event
    WHERE $1::bigint IS NULL
       OR (execution_id = $1 AND (stream_id = 'execution/' || $1 OR starts_with(stream_id, 'execution/' || $1 || '/')))
    GROUP BY stream_id
)
SELECT stream_id, coalesce(version, 0) AS version, coalesce(events, 0) AS events,
       coalesce(first, 0) AS first, coalesce(last, 0) AS last
FROM heads FULL JOIN counted USING (stream_id)
WHERE NOT (coalesce(version, 0) = coalesce(events, 0) AND coalesce(first, 1) = 1
           AND coalesce(last, version) = version)
  AND NOT (events IS NULL AND execution_id IS NOT NULL AND EXISTS (
        SELECT FROM dropped WHERE execution_id BETWEEN first_execution_id AND last_execution_id))
  AND NOT (version IS NOT NULL AND execution_id IS NULL AND coalesce(last, 0) <= version
           AND coalesce(events, 0) <= version AND EXISTS (SELECT FROM dropped))
ORDER BY stream_id LIMIT {SHOWN}
"""  # noqa: S608

_KEYS: Final = f"""
SELECT k.key, k.execution_id, k.event_id, e.event_id IS NULL AS missing, e.idempotency_key
FROM noetl.idempotency_key AS k
LEFT JOIN noetl.known_event AS e ON e.execution_id = k.execution_id AND e.event_id = k.event_id
WHERE k.expires_at > now() AND ($1::bigint IS NULL OR k.execution_id = $1)
  AND e.idempotency_key IS DISTINCT FROM k.key
ORDER BY k.key LIMIT {SHOWN}
"""  # noqa: S608

_ARCHIVES: Final = f"""
WITH said AS (
    SELECT DISTINCT ON (aggregate_id) aggregate_id AS partition, payload_sha256 AS manifest,
           (meta ->> 'events')::bigint AS events, (meta ->> 'executions')::bigint AS executions
    FROM noetl.known_event WHERE execution_id = $1 AND event_type = 'partition.archived'
    ORDER BY aggregate_id, stream_version DESC
), given_up AS (
    SELECT DISTINCT aggregate_id AS partition FROM noetl.known_event
    WHERE execution_id = $1 AND event_type = 'archive.removed'
), rows AS (
    SELECT partition, manifest_sha256 AS manifest, events, executions, removed_at IS NOT NULL AS removed
    FROM noetl.event_archive
)
SELECT partition, to_json(said) AS expected, to_json(rows) AS found
FROM (SELECT said.*, given_up.partition IS NOT NULL AS removed FROM said LEFT JOIN given_up USING (partition)) AS said
FULL JOIN rows USING (partition)
WHERE (said.manifest, said.events, said.executions, said.removed)
      IS DISTINCT FROM (rows.manifest, rows.events, rows.executions, rows.removed)
ORDER BY partition LIMIT {SHOWN}
"""  # noqa: S608

# What lies in archives alone is counted by their rows: their number of events, and their bounds in each shard.
_SHARDS: Final = """
WITH archived AS (
    SELECT (bound).key::smallint AS shard, max(((bound).value ->> 1)::bigint) AS last
    FROM (SELECT json_each(bounds) AS bound FROM noetl.event_archive WHERE dropped_at IS NOT NULL) AS each
    GROUP BY 1
), counted AS (
    SELECT shard, count(*) AS events, max(position) AS last, min(position) AS first FROM noetl.event GROUP BY shard
), linked AS (
    SELECT shard, sum(events) AS events FROM noetl.ledger_link GROUP BY shard
)
SELECT s.shard, s.position, coalesce(c.events, 0) AS events,
       greatest(coalesce(c.last, 0), coalesce(a.last, 0)) AS last, a.shard IS NOT NULL AS archived,
       s.position - s.chained_from + 1 AS chained, coalesce(l.events, 0) AS linked
FROM noetl.shard AS s LEFT JOIN counted AS c USING (shard) LEFT JOIN archived AS a USING (shard)
LEFT JOIN linked AS l USING (shard)
ORDER BY s.shard
"""


async def inline_differences(database: Database, scope: Scope, execution_id: int | None) -> list[Difference]:
    """Compare an organization's, or an execution's, inline rows with its events."""
    async with database.transaction(scope) as connection:
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        found = await _streams(connection, execution_id)
        found += await _keys(connection, execution_id)
        if execution_id is None:
            found += await _archives(connection, scope)
    return found


async def shard_differences(database: Database) -> list[Difference]:
    """Compare the shard heads with the events of all tenants: positions are dense, and the head is the last."""
    async with database.transaction(None, "projector") as connection:
        rows = await connection.fetch(_SHARDS)
    found = []
    for row in rows:
        if row["position"] != row["last"]:
            found.append(_shard(row, "position", row["last"], row["position"]))
        elif not row["archived"] and row["events"] != row["position"]:
            found.append(_shard(row, "events", row["position"], row["events"]))
        elif row["chained"] != row["linked"]:
            found.append(_shard(row, "events under links", row["chained"], int(row["linked"])))
    return found


async def _streams(connection: Connection, execution_id: int | None) -> list[Difference]:
    found = []
    for row in await connection.fetch(_STREAMS, execution_id):
        if row["version"] != row["last"]:
            field, expected, actual = "version", row["last"], row["version"]
        else:
            field, expected, actual = "events (versions are dense from 1)", row["last"], row["events"]
        found.append(Difference(where="stream", id=row["stream_id"], field=field, expected=expected, found=actual))
    return found


async def _keys(connection: Connection, execution_id: int | None) -> list[Difference]:
    return [
        Difference(
            where="idempotency_key",
            id=row["key"],
            field=f"event {row['event_id']} of execution {row['execution_id']}",
            expected=f"an event with the key {row['key']}",
            found="no event" if row["missing"] else f"an event with the key {row['idempotency_key']}",
        )
        for row in await connection.fetch(_KEYS, execution_id)
    ]


async def _archives(connection: Connection, scope: Scope) -> list[Difference]:
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    return [
        Difference(
            where="event_archive", id=row["partition"], field="row", expected=row["expected"], found=row["found"]
        )
        for row in await connection.fetch(_ARCHIVES, root)
    ]


def _shard(row: Any, field: str, expected: int, found: int) -> Difference:
    return Difference(where="shard", id=str(row["shard"]), field=field, expected=expected, found=found)
