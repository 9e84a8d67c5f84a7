"""Heartbeats of all a worker's leases at once, and what it need not keep any longer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from noetl.api.endpoint import WORKERS, Call, Routes
from noetl.api.wire import Attempt, Body, Id, Name, View
from noetl.engine.dispatch.grants import FrameSoFar, LeaseRef
from noetl.errors import InputError
from noetl.model.ids import parse_id

routes = Routes("leases")


class LeaseProof(Body, frozen=True, kw_only=True):
    """A lease on a command or a frame."""

    table: Literal["command", "frame"]
    execution_id: Id
    id: Name
    attempt: Attempt
    token: Annotated[str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class LeasesRequest(Body, frozen=True, kw_only=True):
    """Leases that a worker holds."""

    leases: Annotated[list[LeaseProof], Meta(max_length=10_000)]


class FrameInHand(Body, frozen=True, kw_only=True):
    """How far a frame is that is not committed yet; it is shown to people, and nothing relies on it."""

    stage_id: Id
    frame_id: Id
    attempt: Attempt
    rows_done: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    rows_failed: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    rows_per_second: Annotated[float, Meta(ge=0)] = 0.0


class LookRequest(LeasesRequest, frozen=True, kw_only=True):
    """Leases that a worker holds, and how far it is with frames."""

    so_far: Annotated[list[FrameInHand], Meta(max_length=10_000)] = msgspec.field(default_factory=list)


class ExecutionsRequest(Body, frozen=True, kw_only=True):
    """Executions that a worker keeps something for."""

    executions: Annotated[list[Id], Meta(max_length=10_000)]


class EndedAnswer(View, frozen=True, kw_only=True):
    """Those that have ended, or are not there."""

    ended: list[Id]


class LeasesAnswer(View, frozen=True, kw_only=True):
    """Those that are lost: somebody else has the work, or it has ended."""

    lost: list[LeaseProof]


@routes.post("/api/leases/heartbeat", WORKERS)
async def heartbeat_leases(call: Call, body: LeasesRequest) -> LeasesAnswer:
    """Make leases last longer and name those that are lost."""
    refs = {_ref(proof): proof for proof in body.leases}
    lost = await call.services.engine.dispatch(call.scope).heartbeat(list(refs))
    return LeasesAnswer(lost=[refs[ref] for ref in lost])


@routes.post("/api/leases/lost", WORKERS)
async def find_lost_leases(call: Call, body: LookRequest) -> LeasesAnswer:
    """Name the leases on commands that were taken away, such as by a cancellation; none lasts any longer for it."""
    refs = {_ref(proof): proof for proof in body.leases}
    lost = await call.services.engine.dispatch(call.scope).lost(list(refs), [_said(one) for one in body.so_far])
    return LeasesAnswer(lost=[refs[ref] for ref in lost])


@routes.post("/api/leases/ended", WORKERS)
async def find_ended_executions(call: Call, body: ExecutionsRequest) -> EndedAnswer:
    """Name the executions that have ended or are not there, so that a worker can let go what it kept for them."""
    ids = {parse_id(one): one for one in body.executions}
    ended = await call.services.engine.dispatch(call.scope).ended(list(ids))
    return EndedAnswer(ended=[ids[one] for one in ended])


def _ref(proof: LeaseProof) -> LeaseRef:
    if proof.table == "frame" and not proof.id.isdecimal():
        raise InputError(f"{proof.id[:40]!r} is no frame's id")
    return LeaseRef(proof.table, parse_id(proof.execution_id), proof.id, proof.attempt, proof.token)


def _said(one: FrameInHand) -> FrameSoFar:
    said = msgspec.structs.asdict(one)
    return FrameSoFar(**said | {"stage_id": parse_id(one.stage_id), "frame_id": parse_id(one.frame_id)})
