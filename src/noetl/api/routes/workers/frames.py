"""The worker's protocol for frames: heartbeat, commit, fail, checkpoint. Every change is fenced by the frame's lease."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from noetl.api.endpoint import WORKERS, Call, Routes
from noetl.api.routes.workers.lease_proofs import CommandLease, FrameLease
from noetl.api.wire import Body, OfWorker, View, WorkerId
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport, LeaseRef, StepContext
from noetl.errors import KeyReused, LeaseLost

routes = Routes("frames")


class HeartbeatRequest(Body, frozen=True, kw_only=True):
    """Which lease is to last longer."""

    lease: FrameLease
    worker_id: WorkerId | None = None


class HeartbeatAnswer(View, frozen=True, kw_only=True):
    """Until when the lease lasts now."""

    lease_until: datetime


class CommitRequest(OfWorker, frozen=True, kw_only=True):
    """What a frame came to, and the slot that worked on it."""

    lease: FrameLease
    command: CommandLease
    report: FrameReport
    take_next: bool = False


class CommitAnswer(View, frozen=True, kw_only=True):
    """The next frame, leased to the worker, if one was asked for and there is one."""

    next: FrameGrant | None


class FailRequest(OfWorker, frozen=True, kw_only=True):
    """Why an attempt failed, and how many there may be."""

    lease: FrameLease
    error: dict[str, Any]
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)]


class CheckpointRequest(Body, frozen=True, kw_only=True):
    """How far a frame got."""

    lease: FrameLease
    cursor: dict[str, Any]


@routes.post("/api/frames/{frame_id}/heartbeat", WORKERS)
async def heartbeat_frame(call: Call, frame_id: int, body: HeartbeatRequest) -> HeartbeatAnswer:
    """Make a frame's lease last longer."""
    ref = body.lease.ref(frame_id)
    if await call.services.engine.dispatch(call.scope).heartbeat([ref]):
        raise await call.services.leased.lost(call.scope, ref)
    return HeartbeatAnswer(lease_until=await call.services.leased.lease_until(call.scope, ref))


@routes.post("/api/frames/{frame_id}/commit", WORKERS)
async def commit_frame(call: Call, frame_id: int, body: CommitRequest) -> CommitAnswer:
    """Record what a frame came to, once; the same report again gets the same answer."""
    ref, scope = body.lease.ref(frame_id), call.scope

    async def commit() -> CommitAnswer:
        frame = await call.services.leased.frame(scope, ref)
        grant, holds = await _slot(call, frame, body.command)
        if body.report.row_count < frame.row_count and not holds:
            # The rows that are left go on with the slot's next frame, and it gets none.
            raise await call.services.leased.lost(scope, body.command.ref())
        take_next = body.take_next and holds
        dispatch = call.services.engine.dispatch(scope)
        try:
            following = await dispatch.commit_frame(
                grant, frame, body.report, worker=body.worker_id, take_next=take_next
            )
        except (LeaseLost, KeyReused):
            raise await call.services.leased.lost(scope, ref) from None
        call.services.leased.forget(scope, ref)
        if following is not None:
            call.services.leased.keep(scope, following)
        return CommitAnswer(next=following)

    answer: CommitAnswer = await call.services.leased.once(("commit", scope, ref), commit)
    return answer


@routes.post("/api/frames/{frame_id}/fail", WORKERS, status=204)
async def fail_frame(call: Call, frame_id: int, body: FailRequest) -> None:
    """Record that an attempt failed; after the last one the frame's rows count as failed."""
    ref, scope = body.lease.ref(frame_id), call.scope

    async def fail() -> None:
        frame = await call.services.leased.frame(scope, ref)
        dispatch = call.services.engine.dispatch(scope)
        try:
            await dispatch.fail_frame(frame, body.error, max_attempts=body.max_attempts, worker=body.worker_id)
        except (LeaseLost, KeyReused):
            # Under its key the end of an attempt stands once: another server has recorded it.
            raise await call.services.leased.lost(scope, ref) from None
        call.services.leased.forget(scope, ref)

    await call.services.leased.once(("fail", scope, ref), fail)


@routes.post("/api/frames/{frame_id}/checkpoint", WORKERS, status=204)
async def checkpoint_frame(call: Call, frame_id: int, body: CheckpointRequest) -> None:
    """Record how far a frame got, so that a new owner can go on from there."""
    ref = body.lease.ref(frame_id)
    frame = await call.services.leased.frame(call.scope, ref)
    try:
        await call.services.engine.dispatch(call.scope).checkpoint(frame, body.cursor)
    except KeyReused:
        return  # another server has recorded it, and its answer was lost
    except LeaseLost:
        raise await call.services.leased.lost(call.scope, ref) from None
    # What comes next is held against it: how far a frame got never goes back.
    call.services.leased.keep(call.scope, msgspec.structs.replace(frame, checkpoint=body.cursor))


async def _slot(call: Call, frame: FrameGrant, lease: CommandLease) -> tuple[CommandGrant, bool]:
    """Return the slot's grant; a slot that was lost may still commit the frame it holds, but gets no other."""
    ref: LeaseRef = lease.ref()
    try:
        return await call.services.leased.command(call.scope, ref), True
    except LeaseLost:
        return CommandGrant(
            execution_id=frame.execution_id,
            command_id=ref.id,
            step=frame.step,
            attempt=ref.attempt,
            token=ref.token,
            lease_seconds=frame.lease_seconds,
            catalog_id="",
            issued_event_id=0,
            context=StepContext(workload={}, ctx={}, results={}),
        ), False
