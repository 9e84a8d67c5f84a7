"""Executions as people see and steer them. Every status here is folded from the ledger, with the position it is as of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from noetl.api.endpoint import ANYONE, READERS, WRITERS, Call, Routes
from noetl.api.execution_list import ListedPage, list_executions
from noetl.api.execution_state import ExecutionStatus, ExecutionView, Seen, answer_of, view_of
from noetl.api.routes.executions.start import Started, started
from noetl.api.wire import Body, Id, Name, ReadTokenText, Text, View, combined
from noetl.engine.dispatch.request_keys import reused
from noetl.engine.dispatch.why.explanation import why
from noetl.engine.plan.state import State
from noetl.engine.plan.trigger import Doubt
from noetl.engine.plan.workload import merged
from noetl.kernel.replay.pages import reading
from noetl.model.event import to_json
from noetl.model.ids import Id64, parse_id
from noetl.model.mark import execution_token
from noetl.model.stream import execution_stream

routes = Routes("executions")


class ListQuery(Body, frozen=True, kw_only=True):
    """Which executions to list."""

    cursor: Id | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    status: Literal["RUNNING", "COMPLETED", "FAILED", "CANCELLED"] | None = None
    path: Name | None = None
    parent_execution_id: Id | None = None


class WaitQuery(Body, frozen=True, kw_only=True):
    """How long to wait for the end."""

    wait: Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for the execution's end.")] = 0.0


class EventsQuery(Body, frozen=True, kw_only=True):
    """Which events to give."""

    from_position: Annotated[int, Meta(ge=1, le=2**63 - 1)] = 1
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200
    type: Name | None = None


class WhyQuery(Body, frozen=True, kw_only=True):
    """What to explain: the execution, one of its steps, or one of its frames."""

    step: Name | None = None
    frame_id: Id | None = None


class CancelRequest(Body, frozen=True, kw_only=True):
    """Why to stop, and whether what the execution started stops too."""

    reason: Text = "cancelled by request"
    cascade: bool = True


class RerunRequest(Body, frozen=True, kw_only=True):
    """Where to begin, and what to change in the workload."""

    from_step: Name | None = None
    payload: dict[str, Any] = field(default_factory=dict)


class EventsPage(View, frozen=True, kw_only=True):
    """Events by position; `next_position` is null when there are no more yet."""

    events: list[dict[str, Any]]
    next_position: int | None


class CancellationCheck(View, frozen=True, kw_only=True):
    """Whether work for an execution is still wanted."""

    execution_id: Id64
    cancelled: bool
    status: str


class CancelAnswer(View, frozen=True, kw_only=True):
    """Which executions were cancelled by this request."""

    execution_id: Id64
    status: str
    cancelled: list[Id64]
    read_token: ReadTokenText


class FinalizeAnswer(ExecutionStatus, frozen=True, kw_only=True):
    """How an execution is after it was looked at again."""

    read_token: ReadTokenText


@routes.get("/api/executions", READERS)
async def list_all_executions(call: Call, query: ListQuery) -> ListedPage:
    """List executions, the newest first."""
    return await list_executions(
        call.services.database,
        call.scope,
        before=None if query.cursor is None else parse_id(query.cursor),
        limit=query.limit,
        status=query.status,
        path=query.path,
        parent=None if query.parent_execution_id is None else parse_id(query.parent_execution_id),
    )


@routes.get("/api/executions/{execution_id}", READERS, waits=True)
async def get_execution(call: Call, execution_id: int, query: WaitQuery) -> ExecutionView:
    """Return an execution; with `wait`, when it has ended or the time is over."""
    seen = await call.services.reading.ended(
        call.scope, execution_id, call.services.engine.ended, query.wait, call.services.stopping
    )
    return view_of(seen)


@routes.get("/api/executions/{execution_id}/status", READERS)
async def get_execution_status(call: Call, execution_id: int) -> ExecutionStatus:
    """Return how an execution is."""
    return answer_of(ExecutionStatus, await _seen(call, execution_id))


@routes.get("/api/executions/{execution_id}/events", READERS)
async def get_execution_events(call: Call, execution_id: int, query: EventsQuery) -> EventsPage:
    """Return an execution's events from a position on, archived ones too."""
    await _seen(call, execution_id)
    found: list[dict[str, Any]] = []
    async with reading(call.services.history.execution_pages(call.scope, execution_id, query.from_position)) as pages:
        async for page in pages:
            for event in page:
                if query.type is not None and event.event_type != query.type:
                    continue
                if len(found) == query.limit:
                    return EventsPage(events=found, next_position=event.position)
                found.append(to_json(event))
    return EventsPage(events=found, next_position=None)


@routes.get("/api/executions/{execution_id}/why", READERS)
async def explain_execution(call: Call, execution_id: int, query: WhyQuery) -> dict[str, Any]:
    """Say in sentences why an execution, a step or a frame is as it is, each with the events that prove it."""
    services, seen = call.services, await _seen(call, execution_id)
    plan = await services.catalog.plan(call.scope, seen.state.catalog_id)
    frame_id = None if query.frame_id is None else parse_id(query.frame_id)
    explained = await why(
        services.history, services.payloads, plan, call.scope, execution_id, step=query.step, frame_id=frame_id
    )
    return explained.to_json()


@routes.get("/api/executions/{execution_id}/cancellation-check", ANYONE)
async def check_cancellation(call: Call, execution_id: int) -> CancellationCheck:
    """Tell whether an execution was cancelled."""
    state = (await _seen(call, execution_id)).state
    return combined(CancellationCheck, state, cancelled=state.status == "CANCELLED")


@routes.post("/api/executions/{execution_id}/cancel", WRITERS, repeatable=True)
async def cancel_execution(call: Call, execution_id: int, body: CancelRequest | None = None) -> CancelAnswer:
    """Cancel an execution and, with `cascade`, all it started that still runs. One that has ended stays as it is."""
    body = body or CancelRequest()
    cancelled = await call.services.engine.cancel(
        call.scope, execution_id, reason=body.reason, by=call.caller.name, cascade=body.cascade
    )
    seen = await _seen(call, execution_id)
    return combined(CancelAnswer, seen.state, cancelled=cancelled, read_token=_token(seen))


@routes.post("/api/executions/{execution_id}/finalize", WRITERS, repeatable=True)
async def finalize_execution(call: Call, execution_id: int) -> FinalizeAnswer:
    """Look at an execution again: it goes on if anything can, and ends if nothing is open. Open work is left alone."""
    await call.services.engine.executions.trigger(call.scope, execution_id, Doubt())
    seen = await _seen(call, execution_id)
    return answer_of(FinalizeAnswer, seen, read_token=_token(seen))


@routes.post("/api/executions/{execution_id}/rerun", WRITERS, status=201, keyed=True)
async def rerun_execution(call: Call, execution_id: int, body: RerunRequest | None = None) -> Started:
    """Start a new execution of the same version with the same workload, from a step on if one is named.

    With an Idempotency-Key, a second request under the same key gives the execution the first one started.
    """
    body, key = body or RerunRequest(), call.key
    state = await call.services.engine.rerun(
        call.scope,
        execution_id,
        from_step=body.from_step,
        payload=body.payload,
        requested_by=call.caller.name,
        key=key,
    )
    if key is not None:
        await _check_same(call, state, execution_id, body, key)
    return started(state)


async def _check_same(call: Call, state: State, execution_id: int, body: RerunRequest, key: str) -> None:
    """Refuse a key that stands for an execution of something else."""
    before = (await _seen(call, execution_id)).state
    asked = await anext(call.services.ledger.read(execution_stream(call.scope, state.execution_id)))
    stands = (asked.meta.get("rerun_of"), asked.meta.get("from_step"), state.workload)
    if stands != (str(execution_id), body.from_step, merged(before.workload, body.payload)):
        raise reused(key, state.execution_id)


async def _seen(call: Call, execution_id: int) -> Seen:
    return await call.services.reading.seen(call.scope, execution_id)


def _token(seen: Seen) -> str:
    return str(execution_token(seen.state.execution_id, seen.state.version))
