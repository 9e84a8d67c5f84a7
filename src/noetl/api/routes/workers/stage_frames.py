"""Frames of a stage: those in hand from their rows; of those that have ended the rows are gone, and events tell of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import orjson
from msgspec import Meta, field

from noetl.api.endpoint import Call
from noetl.api.wire import Body, Id, View
from noetl.errors import NotFound
from noetl.model.ids import Id64, parse_id

_IN_HAND: Final = """
SELECT frame_id, execution_id, status, frame_index, first_index, row_count, attempt, worker AS owner_worker, lease_until,
       last_heartbeat
FROM noetl.frame WHERE stage_id = $1 AND frame_index >= $2 ORDER BY frame_index LIMIT $3
"""
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
SELECT e.frame_id, e.execution_id, e.event_type, e.event_time AS ended_at, e.result, e.error, d.current_index AS first_index,
       (d.meta ->> 'frame_index')::integer AS frame_index, (e.meta ->> 'row_count')::integer AS row_count,
       (e.meta ->> 'attempt')::integer AS attempt, (e.meta ->> 'failed_count')::integer AS failed_count,
       d.meta ->> 'worker' AS owner_worker
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


class FramesQuery(Body, frozen=True, kw_only=True):
    """Which frames, where to go on, and how many to give."""

    status: Literal["open", "ended", "committed", "failed"] = "open"
    """`failed` are frames that have ended and of which a row failed, all or some."""
    execution_id: Id | None = None
    """Whose stage it is; for frames that have ended, naming the execution spares a search."""
    from_index: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class RowErrorView(View, frozen=True, kw_only=True):
    """Why a row failed."""

    index: int
    message: str


class FrameView(View, frozen=True, kw_only=True):
    """A frame: who has it, or what it came to."""

    frame_id: Id64
    execution_id: Id64
    status: str
    frame_index: int
    first_index: int
    row_count: int
    attempt: int
    owner_worker: str | None
    lease_until: datetime | None
    last_heartbeat: datetime | None
    ended_at: datetime | None = None
    failed_count: int = 0
    error: str | None = None
    """Why the frame failed as a whole."""
    errors: list[RowErrorView] = field(default_factory=list)
    """The first few rows that failed."""


class FramesPage(View, frozen=True, kw_only=True):
    """Frames by index; `next_index` is null on the last page."""

    frames: list[FrameView]
    next_index: int | None


async def open_frames(call: Call, stage_id: int, query: FramesQuery) -> list[FrameView]:
    """Return the frames that have not ended, from an index on."""
    async with call.services.database.transaction(call.scope) as connection:
        rows = await connection.fetch(_IN_HAND, stage_id, query.from_index, query.limit)
    return [FrameView(**dict(row)) for row in rows]


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
    fields = dict(row)
    has_failed = fields.pop("event_type") in _FAILED
    result = orjson.loads(fields.pop("result") or "{}")
    errors = [
        RowErrorView(index=one.get("index", row["first_index"]), message=one.get("message") or "")
        for one in result.get("errors", ())
    ]
    own = {
        "status": "FAILED" if has_failed else "COMMITTED",
        "failed_count": row["row_count"] if has_failed else row["failed_count"] or 0,
    }
    return FrameView(**{**fields, **own}, lease_until=None, last_heartbeat=None, errors=errors)
