"""Stages and the frames handed out of them."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from msgspec import Meta, field

from noetl.api.endpoint import READERS, WORKERS, Call, Routes
from noetl.api.routes.workers.commands import Locality
from noetl.api.routes.workers.lease_proofs import CommandLease, StageNotOpen
from noetl.api.routes.workers.stage_frames import FramesPage, FramesQuery, ended_frames, open_frames
from noetl.api.wire import Body, Id, OfWorker, View
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant
from noetl.engine.dispatch.loops.progress import SoFarView
from noetl.errors import Conflict, LeaseLost, NotFound
from noetl.model.ids import Id64, parse_id
from noetl.model.payload_ref import PayloadRef

routes = Routes("stages")

_OPEN = """
SELECT stage_id, execution_id, step_name AS step, kind, 'OPEN' AS status, total_rows, frames_minted, frames_open,
       frames_failed, rows_done, rows_failed, errors, frame_policy FROM noetl.stage WHERE stage_id = $1
"""
_PROJECTED = """
SELECT state FROM noetl.projection WHERE projection = 'stage' AND state ->> 'stage_id' = $1
AND ($2::bigint IS NULL OR execution_id = $2) LIMIT 1
"""


class FrameClaimRequest(OfWorker, frozen=True, kw_only=True):
    """Which slot asks for frames, and for how many.

    Of frames that were given up, those come first whose last worker was nearest to `locality`, or to where the worker's name
    says it is, and none from farther than its `max_distance`. New rows of the stage lie nowhere and are for every slot.
    """

    lease: CommandLease
    requested_count: Annotated[int, Meta(ge=1, le=100)] = 1
    locality: Locality | None = None


class FrameClaimAnswer(View, frozen=True, kw_only=True):
    """Frames leased to the worker; none when the stage's rows are all handed out."""

    frames: list[FrameGrant]


class RowsRequest(OfWorker, frozen=True, kw_only=True):
    """Rows that a slot claimed in the user's database, stored as a payload."""

    lease: CommandLease
    rows: PayloadRef
    row_count: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class FrameAnswer(View, frozen=True, kw_only=True):
    """The frame that was made, leased to the worker."""

    frame: FrameGrant


class CtxRequest(Body, frozen=True, kw_only=True):
    """Which slot asks."""

    lease: CommandLease


class CtxAnswer(View, frozen=True, kw_only=True):
    """What committed frames of the loop have set."""

    ctx: dict[str, Any]


class StageQuery(Body, frozen=True, kw_only=True):
    """Whose stage it is; naming the execution spares a search for one that is closed."""

    execution_id: Id | None = None


class StageView(View, frozen=True, kw_only=True):
    """A stage: how far its rows are handed out and what came of them."""

    stage_id: Id64
    execution_id: Id64
    step: str
    kind: str
    status: str
    frames_minted: int
    frames_open: int
    frames_failed: int
    rows_done: int
    rows_failed: int
    total_rows: int | None = None
    errors: int = 0
    frame_policy: dict[str, Any] = field(default_factory=dict)
    so_far: SoFarView | None = None
    """A hint for people; null where nothing more is known than what is committed."""


@routes.post("/api/stages/{stage_id}/frames/claim", WORKERS)
async def claim_frames(call: Call, stage_id: int, body: FrameClaimRequest) -> FrameClaimAnswer:
    """Lease frames of a slot's stage: those nobody works on any more first, then the next rows."""
    grant = await _slot(call, stage_id, body.lease)
    dispatch = call.services.engine.dispatch(call.scope)
    wish = None if body.locality is None else body.locality.wish()
    frames: list[FrameGrant] = []
    try:
        while len(frames) < body.requested_count:
            frame = await dispatch.next_frame(grant, body.worker_id, wish)
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
        so_far = await _so_far(call, row["execution_id"], stage_id)
        return StageView(**{**row, "frame_policy": orjson.loads(row["frame_policy"])}, so_far=so_far)
    async with (call.services.stages or call.services.database).transaction(call.scope) as connection:
        kept = await connection.fetchval(_PROJECTED, str(stage_id), execution_id)
    if kept is None:
        raise NotFound(f"there is no stage {stage_id}")
    return _closed(stage_id, orjson.loads(kept))


@routes.get("/api/stages/{stage_id}/frames", READERS)
async def list_frames(call: Call, stage_id: int, query: FramesQuery) -> FramesPage:
    """List the frames of a stage that have not ended; with `status`, those that have, and why their rows failed."""
    found = open_frames if query.status == "open" else ended_frames
    frames = await found(call, stage_id, query)
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
    stages = await call.services.engine.so_far.of(call.scope, execution_id)
    return next((one for one in stages if one.stage_id == stage_id), None)


def _closed(stage_id: int, row: dict[str, Any]) -> StageView:
    return StageView(
        stage_id=stage_id,
        execution_id=parse_id(row["execution_id"]),
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
