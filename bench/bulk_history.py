"""Fills the ledger with many ended executions over all shards, by SQL, since appending millions of events takes minutes.

Executions of a shard run sixteen at a time, so their events stand mixed, as those of a busy installation do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import asyncpg

from bench.database_testbed import SCOPE
from noetl.model.stream import SHARD_COUNT, execution_stream

EVENTS_EACH: Final = 100
FRAMES_EACH: Final = (EVENTS_EACH - 6) // 2
_TOGETHER: Final = 16
_IDS_EACH: Final = 256

# Of an execution's hundred events the first three open it, its loop and its stage, and the last three close them.
_EVENTS: Final = f"""
INSERT INTO noetl.event (
    execution_id, event_id, position, stream_version, event_time, ingest_time, stage_id, frame_id, loop_id,
    schema_version, shard, tenant_id, organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name,
    producer, correlation_id, idempotency_key, node_name, status, payload_sha256, meta, context, result, payload_ref)
SELECT execution_id, execution_id + 64 + k, position, version, moment, moment,
       CASE WHEN kind = 'stage' OR kind = 'frame' THEN execution_id + 2 END,
       CASE kind WHEN 'frame' THEN execution_id + 3 + frame END,
       CASE WHEN kind = 'loop' OR kind = 'frame' THEN execution_id + 1 END,
       1, $2::smallint, $3::text, $4::text,
       CASE kind WHEN 'playbook' THEN 'execution/' || execution_id
            ELSE 'execution/' || execution_id || '/' || kind || '/' || aggregate_id END,
       CASE kind WHEN 'playbook' THEN 'execution' ELSE kind END, aggregate_id::text, kind || '.' || word,
       'noetl.' || kind || '.' || word, 'noetl://tenant/default/org/default/worker/cpu-01', execution_id::text,
       CASE word WHEN 'committed' THEN 'frame/' || frame || '/committed/1' END,
       CASE kind WHEN 'playbook' THEN NULL ELSE 'fetch' END, CASE kind WHEN 'stage' THEN 'ok' END,
       CASE word WHEN 'committed' THEN digest END,
       CASE kind || '.' || word
            WHEN 'loop.started' THEN '{{"collection_size":{FRAMES_EACH * 50},"mode":"cursor"}}'::json
            WHEN 'stage.opened' THEN '{{"kind":"loop","dsl_ref":"steps/fetch"}}'::json
            WHEN 'frame.dispatched' THEN json_build_object('attempt', 1, 'row_count', 50, 'worker', 'cpu-' || frame % 16)
            WHEN 'frame.committed' THEN json_build_object('attempt', 1, 'failed_count', 0, 'row_count', 50) END,
       CASE word WHEN 'dispatched' THEN
            json_build_object('cursor', json_build_object('first', frame * 50, 'last', frame * 50 + 50)) END,
       CASE kind || '.' || word WHEN 'loop.done' THEN '{{"status":"ok","context":{{"total":{FRAMES_EACH * 50}}}}}'::json END,
       CASE word WHEN 'committed' THEN json_build_object(
           'uri', 'noetl://tenant/default/org/default/payloads/sha256/' || digest, 'sha256', digest,
           'media_type', 'application/vnd.apache.arrow.stream', 'bytes', 40960, 'stored_sha256', digest,
           'encoding', 'zstd', 'rows', 50) END
FROM (
    SELECT *, now() - interval '1 hour' + position * interval '1 ms' AS moment,
           CASE kind WHEN 'playbook' THEN execution_id WHEN 'loop' THEN execution_id + 1
                WHEN 'stage' THEN execution_id + 2 ELSE execution_id + 3 + frame END AS aggregate_id,
           CASE word WHEN 'committed' THEN
                encode(sha256((execution_id::text || '/' || frame)::bytea), 'hex') END AS digest
    FROM (
        SELECT execution_id, k, (k - 3) / 2 AS frame,
               (place / {_TOGETHER}) * {_TOGETHER * EVENTS_EACH} + place % {_TOGETHER} + 1
                   + k * least({_TOGETHER}, count(*) OVER (PARTITION BY k) - place / {_TOGETHER} * {_TOGETHER}) AS position,
               CASE WHEN k IN (0, 99) THEN 'playbook' WHEN k IN (1, 98) THEN 'loop' WHEN k IN (2, 97) THEN 'stage'
                    ELSE 'frame' END AS kind,
               CASE k WHEN 0 THEN 'initialized' WHEN 1 THEN 'started' WHEN 2 THEN 'opened' WHEN 97 THEN 'closed'
                    WHEN 98 THEN 'done' WHEN 99 THEN 'completed'
                    ELSE CASE k % 2 WHEN 1 THEN 'dispatched' ELSE 'committed' END END AS word,
               CASE WHEN k < 3 THEN 1 WHEN k > 96 OR k % 2 = 0 THEN 2 ELSE 1 END AS version
        FROM (SELECT execution_id, number - 1 AS place
              FROM unnest($1::bigint[]) WITH ORDINALITY AS given (execution_id, number)) AS execution
        CROSS JOIN generate_series(0, {EVENTS_EACH - 1}) AS k
    ) AS planned
) AS told
ORDER BY position
"""


async def many_executions(bare: asyncpg.Connection, mint: Callable[[], int], executions: int) -> int:
    """Make so many executions of a hundred events each in an empty ledger, and return how many events that are."""
    first = (mint() // _IDS_EACH + 1) * _IDS_EACH
    by_shard: dict[int, list[int]] = {shard: [] for shard in range(SHARD_COUNT)}
    for number in range(executions):
        execution_id = first + number * _IDS_EACH
        by_shard[execution_stream(SCOPE, execution_id).shard].append(execution_id)
    for shard, own in by_shard.items():
        await bare.execute(_EVENTS, own, shard, SCOPE.tenant_id, SCOPE.organization_id)
        await bare.execute(
            "UPDATE noetl.shard SET position = position + $1 WHERE shard = $2", len(own) * EVENTS_EACH, shard
        )
    await bare.execute("VACUUM ANALYZE noetl.event")
    return executions * EVENTS_EACH
