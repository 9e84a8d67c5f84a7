"""Stages and the frames handed out of them."""

from __future__ import annotations

from typing import Any

import orjson

from noetl.api.endpoint import READERS, WORKERS, Call, Routes
from noetl.api.leased import CommandLease, StageNotOpen
from noetl.api.routes.stage_frames import ended_frames
from noetl.api.routes.stage_views import (
    CtxAnswer,
    CtxRequest,
    FrameAnswer,
    FrameClaimAnswer,
    FrameClaimRequest,
    FramesPage,
    FramesQuery,
    FrameView,
    RowsRequest,
    SoFarView,
    StageQuery,
    StageView,
)
from noetl.dispatch.grants import CommandGrant, FrameGrant
from noetl.errors import Conflict, LeaseLost, NotFound
from noetl.model.ids import parse_id

routes = Routes("stages")

_OPEN = """
SELECT execution_id, loop_id, step_name, kind, total_rows, next_index, frames_minted, frames_open, frames_failed,
       rows_done, rows_failed, errors, frame_policy FROM noetl.stage WHERE stage_id = $1
"""
_PROJECTED = """
SELECT state FROM noetl.projection WHERE projection = 'stage' AND state ->> 'stage_id' = $1
AND ($2::bigint IS NULL OR execution_id = $2) LIMIT 1
"""
_FRAMES = """
SELECT frame_id, execution_id, status, frame_index, first_index, row_count, attempt, worker, lease_until, last_heartbeat
FROM noetl.frame WHERE stage_id = $1 AND frame_index >= $2 ORDER BY frame_index LIMIT $3
"""


@routes.post("/api/stages/{stage_id}/frames/claim", WORKERS)
async def claim_frames(call: Call, stage_id: int, body: FrameClaimRequest) -> FrameClaimAnswer:
    """Lease frames of a slot's stage: those nobody works on any more first, then the next rows."""
    grant = await _slot(call, stage_id, body.lease)
    dispatch = call.services.engine.dispatch(call.scope)
    frames: list[FrameGrant] = []
    try:
        while len(frames) < body.requested_count:
            frame = await dispatch.next_frame(grant, body.worker_id)
            if frame is None:
                break
            call.services.leased.keep(call.scope, frame)
            frames.append(frame)
    except LeaseLost:
        raise await call.services.leased.lost(call.scope, body.lease.ref()) from None
    except Conflict as problem:
        raise StageNotOpen(problem.message) from None
    return FrameClaimAnswer(frames=frames)


@routes.post("/api/stages/{stage_id}/frames/dispatch", WORKERS, status=201)
async def dispatch_rows(call: Call, stage_id: int, body: RowsRequest) -> FrameAnswer:
    """Record rows that were claimed elsewhere as a new frame; the same rows again give the same frame."""
    ref = body.lease.ref()

    async def dispatch() -> FrameAnswer:
        grant = await _slot(call, stage_id, body.lease)
        rows = call.services.engine.dispatch(call.scope)
        try:
            frame = await rows.dispatch_rows(grant, body.worker_id, body.rows, body.row_count)
        except LeaseLost:
            raise await call.services.leased.lost(call.scope, ref) from None
        except Conflict as problem:
            raise StageNotOpen(problem.message) from None
        call.services.leased.keep(call.scope, frame)
        return FrameAnswer(frame=frame)

    if call.key is None:
        return await dispatch()
    answer: FrameAnswer = await call.services.leased.once(("rows", call.scope, ref, call.key), dispatch)
    return answer


@routes.post("/api/stages/{stage_id}/ctx", WORKERS)
async def get_loop_ctx(call: Call, stage_id: int, body: CtxRequest) -> CtxAnswer:
    """Return the shared values that committed frames of a loop have set so far."""
    grant = await _slot(call, stage_id, body.lease)
    return CtxAnswer(ctx=await call.services.engine.dispatch(call.scope).loop_ctx(grant))


@routes.get("/api/stages/{stage_id}", READERS)
async def get_stage(call: Call, stage_id: int, query: StageQuery) -> StageView:
    """Return a stage; one that is closed as far as projections have come."""
    execution_id = None if query.execution_id is None else parse_id(query.execution_id)
    async with call.services.database.transaction(call.scope) as connection:
        row = await connection.fetchrow(_OPEN, stage_id)
    if row is not None:
        shown = {name: value for name, value in row.items() if name in StageView.__struct_fields__}
        shown |= {"execution_id": str(row["execution_id"]), "frame_policy": orjson.loads(row["frame_policy"])}
        so_far = await _so_far(call, row["execution_id"], stage_id)
        return StageView(stage_id=str(stage_id), step=row["step_name"], status="OPEN", so_far=so_far, **shown)
    async with (call.services.stages or call.services.database).transaction(call.scope) as connection:
        kept = await connection.fetchval(_PROJECTED, str(stage_id), execution_id)
    if kept is None:
        raise NotFound(f"there is no stage {stage_id}")
    return _closed(stage_id, orjson.loads(kept))


@routes.get("/api/stages/{stage_id}/frames", READERS)
async def list_frames(call: Call, stage_id: int, query: FramesQuery) -> FramesPage:
    """List the frames of a stage that have not ended; with `status`, those that have, and why their rows failed."""
    if query.status == "open":
        async with call.services.database.transaction(call.scope) as connection:
            rows = await connection.fetch(_FRAMES, stage_id, query.from_index, query.limit)
        frames = [_frame(row) for row in rows]
    else:
        frames = await ended_frames(call, stage_id, query)
    full = len(frames) == query.limit
    return FramesPage(frames=frames, next_index=frames[-1].frame_index + 1 if full else None)


async def _slot(call: Call, stage_id: int, lease: CommandLease) -> CommandGrant:
    grant = await call.services.leased.command(call.scope, lease.ref())
    if grant.loop is None or grant.loop.stage_id != stage_id:
        raise StageNotOpen(
            f"command {grant.command_id} of execution {grant.execution_id} does not work on stage {stage_id}"
        )
    return grant


async def _so_far(call: Call, execution_id: int, stage_id: int) -> SoFarView | None:
    for one in await call.services.engine.so_far.of(call.scope, execution_id):
        if one.stage_id == stage_id:
            return SoFarView(rows_done=one.rows_done, rows_failed=one.rows_failed, rows_per_second=one.rows_per_second)
    return None


def _frame(row: Any) -> FrameView:
    shown = dict(row) | {"frame_id": str(row["frame_id"]), "execution_id": str(row["execution_id"])}
    return FrameView(owner_worker=shown.pop("worker"), **shown)


def _closed(stage_id: int, row: dict[str, Any]) -> StageView:
    return StageView(
        stage_id=str(stage_id),
        execution_id=row["execution_id"],
        step=row["step_name"] or "",
        kind=row["kind"] or "",
        status=row["status"],
        frames_minted=row["frames_dispatched"],
        frames_open=0,
        frames_failed=row["frames_failed"],
        rows_done=row["rows"] - row["rows_failed"],
        rows_failed=row["rows_failed"],
        frame_policy=row["frame_policy"] or {},
    )
