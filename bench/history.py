"""Fills the ledger with one long execution of ended frames, by SQL, since appending millions of events takes minutes."""

from __future__ import annotations

from bench.database_testbed import SCOPE, DatabaseTestbed
from noetl.model.stream import execution_stream, loop_stream, stage_stream

_FRAMES = """
INSERT INTO noetl.event (
    execution_id, event_id, position, stream_version, event_time, ingest_time, stage_id, frame_id, loop_id,
    schema_version, shard, tenant_id, organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name,
    producer, correlation_id, idempotency_key, node_name, payload_sha256, meta, context, payload_ref)
SELECT $1::bigint, $2::bigint + frame * 4 + half, $3::bigint + frame * 2 + half + 1, half + 1, now() - interval '1 hour' + frame * interval '1 ms',
       now() - interval '1 hour' + frame * interval '1 ms', $4::bigint, $2::bigint + frame * 4 + 2, $5::bigint, 1, $6::smallint, $7::text, $8::text,
       'execution/' || ($1::bigint)::text || '/frame/' || ($2::bigint + frame * 4 + 2), 'frame', ($2::bigint + frame * 4 + 2)::text,
       CASE half WHEN 0 THEN 'frame.dispatched' ELSE 'frame.committed' END,
       CASE half WHEN 0 THEN 'noetl.frame.dispatched' ELSE 'noetl.frame.committed' END,
       'noetl://tenant/default/org/default/worker/cpu-01', ($1::bigint)::text,
       CASE half WHEN 1 THEN 'frame/' || frame || '/committed/1' END, 'fetch',
       CASE half WHEN 1 THEN digest END,
       CASE half WHEN 0 THEN json_build_object('attempt', 1, 'row_count', 50, 'worker', 'cpu-' || frame % 16)
            ELSE json_build_object('attempt', 1, 'failed_count', 0, 'row_count', 50) END,
       CASE half WHEN 0 THEN json_build_object('cursor', json_build_object('first', frame * 50, 'last', frame * 50 + 50)) END,
       CASE half WHEN 1 THEN json_build_object(
           'uri', 'noetl://tenant/default/org/default/payloads/sha256/' || digest, 'sha256', digest,
           'media_type', 'application/vnd.apache.arrow.stream', 'bytes', 40960, 'stored_sha256', digest,
           'encoding', 'zstd', 'rows', 50) END
FROM generate_series($9::bigint, $10::bigint) AS frame
CROSS JOIN generate_series(0, 1) AS half
CROSS JOIN LATERAL (SELECT encode(sha256(frame::text::bytea), 'hex') AS digest) AS payload
"""


async def long_execution(on: DatabaseTestbed, events: int) -> int:
    """Make an execution with a loop of that many frame events, and return its id."""
    execution_id, loop_id, stage_id = on.ids.mint_many(3)
    drafts = on.drafts
    await on.ledger.append(execution_stream(SCOPE, execution_id), [drafts.execution(execution_id)])
    started = drafts.loop(
        execution_id, loop_id, "loop.started", meta={"collection_size": events * 25, "mode": "cursor"}
    )
    await on.ledger.append(loop_stream(SCOPE, execution_id, loop_id), [started])
    last = await on.ledger.append(stage_stream(SCOPE, execution_id, stage_id), [drafts.stage(execution_id, stage_id)])
    frames, first_id = events // 2, on.ids.mint()
    for start in range(0, frames, 50_000):
        await on.bare.execute(
            _FRAMES,
            execution_id,
            first_id,
            last.last_position,
            stage_id,
            loop_id,
            last.shard,
            SCOPE.tenant_id,
            SCOPE.organization_id,
            start,
            min(start + 50_000, frames) - 1,
        )
    await on.bare.execute("UPDATE noetl.shard SET position = position + $1 WHERE shard = $2", frames * 2, last.shard)
    await on.bare.execute("ANALYZE noetl.event")
    return execution_id
