"""Frames of a stage that have ended: their rows are gone, so what is shown of them are their events."""

from __future__ import annotations

from typing import Any, Final

import orjson

from noetl.api.endpoint import Call
from noetl.api.routes.stage_views import FramesQuery, FrameView, RowErrorView
from noetl.errors import NotFound
from noetl.model.ids import parse_id

_OPEN: Final = "SELECT execution_id, loop_id FROM noetl.stage WHERE stage_id = $1"
_OPENED: Final = """
SELECT execution_id, loop_id FROM noetl.known_event
WHERE execution_id = $2 AND event_type = 'stage.opened' AND stage_id = $1
"""
_PROJECTED: Final = """
SELECT execution_id, (state ->> 'loop_id')::bigint AS loop_id FROM noetl.projection
WHERE projection = 'stage' AND state ->> 'stage_id' = $1 LIMIT 1
"""
_ENDED: Final = """
SELECT e.frame_id, e.execution_id, e.event_type, e.event_time, e.result, e.error, d.current_index AS first_index,
       (d.meta ->> 'frame_index')::integer AS frame_index, (e.meta ->> 'row_count')::integer AS row_count,
       (e.meta ->> 'attempt')::integer AS attempt, (e.meta ->> 'failed_count')::integer AS failed_count,
       d.meta ->> 'worker' AS worker
FROM noetl.known_event AS e JOIN noetl.known_event AS d ON d.execution_id = e.execution_id AND d.loop_id = e.loop_id
    AND d.frame_id = e.frame_id AND d.event_type IN ('frame.dispatched', 'loop.shard.enqueued')
    AND d.meta ->> 'attempt' = e.meta ->> 'attempt'
WHERE e.execution_id = $1 AND e.loop_id = $2 AND e.stage_id = $3 AND e.event_type = ANY ($4)
  AND ($5 OR e.event_type NOT IN ('frame.committed', 'loop.shard.done') OR e.meta ->> 'failed_count' IS NOT NULL)
  AND (d.meta ->> 'frame_index')::integer >= $6
ORDER BY frame_index LIMIT $7
"""

_COMMITTED: Final = ("frame.committed", "loop.shard.done")
_FAILED: Final = ("frame.failed", "loop.shard.failed")


async def ended_frames(call: Call, stage_id: int, query: FramesQuery) -> list[FrameView]:
    """Return the frames that have ended in the way asked for, from an index on."""
    execution_id, loop_id = await _stage(call, stage_id, query.execution_id)
    kinds = _COMMITTED if query.status == "committed" else (*_COMMITTED, *_FAILED)
    async with call.services.database.transaction(call.scope) as connection:
        rows = await connection.fetch(
            _ENDED, execution_id, loop_id, stage_id, kinds, query.status != "failed", query.from_index, query.limit
        )
    return [_frame(row) for row in rows]


async def _stage(call: Call, stage_id: int, execution: str | None) -> tuple[int, int | None]:
    """Find the execution and the loop of a stage, open or closed."""
    async with call.services.database.transaction(call.scope) as connection:
        if execution is not None:
            row = await connection.fetchrow(_OPENED, stage_id, parse_id(execution))
        else:
            row = await connection.fetchrow(_OPEN, stage_id)
    if row is None and execution is None:
        async with (call.services.stages or call.services.database).transaction(call.scope) as connection:
            row = await connection.fetchrow(_PROJECTED, str(stage_id))
    if row is None:
        raise NotFound(f"there is no stage {stage_id}")
    return row["execution_id"], row["loop_id"]


def _frame(row: Any) -> FrameView:
    result = orjson.loads(row["result"]) if row["result"] else {}
    errors = [RowErrorView(index=one["index"], message=one.get("message") or "") for one in result.get("errors", ())]
    has_failed = row["event_type"] in _FAILED
    return FrameView(
        frame_id=str(row["frame_id"]),
        execution_id=str(row["execution_id"]),
        status="FAILED" if has_failed else "COMMITTED",
        frame_index=row["frame_index"],
        first_index=row["first_index"],
        row_count=row["row_count"],
        attempt=row["attempt"],
        owner_worker=row["worker"],
        lease_until=None,
        last_heartbeat=None,
        ended_at=row["event_time"],
        failed_count=row["row_count"] if has_failed else row["failed_count"] or 0,
        error=row["error"],
        errors=errors,
    )
