"""Starting executions. A request's payload is laid over the playbook's workload, and the answer shows what is in force."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from noetl.api.endpoint import WRITERS, Call, Routes
from noetl.api.execution_state import open_commands
from noetl.api.problems import Problem, described
from noetl.api.wire import Body, Id, Name, ReadTokenText, Version, View, combined
from noetl.engine.catalog.playbooks import Entry
from noetl.engine.dispatch.request_keys import reused
from noetl.engine.plan.state import State
from noetl.errors import InputError, NoetlError
from noetl.model.ids import Id64, parse_id
from noetl.model.mark import execution_token

routes = Routes("execute")


class ExecuteRequest(Body, frozen=True, kw_only=True):
    """Which playbook to run, and with what."""

    path: Name | None = None
    catalog_id: Name | None = None
    version: Version | None = None
    payload: dict[str, Any] | UnsetType = UNSET
    workload: dict[str, Any] | UnsetType = UNSET
    """Another name for `payload`."""
    parent_execution_id: Id | None = None


class Started(View, frozen=True, kw_only=True):
    """An execution that was started."""

    execution_id: Id64
    status: str
    commands_generated: int
    path: str
    catalog_id: str
    workload: dict[str, Any]
    """What is in force: the playbook's own values with the request's laid over them."""
    read_token: ReadTokenText


class BatchRequest(Body, frozen=True, kw_only=True):
    """Several executions at once."""

    executions: Annotated[list[ExecuteRequest], Meta(min_length=1, max_length=100)]


class BatchItem(View, frozen=True, kw_only=True):
    """What became of one of them: `started` or `problem`."""

    started: Started | None = None
    problem: Problem | None = None


class BatchAnswer(View, frozen=True, kw_only=True):
    """What became of each, in the order asked."""

    results: list[BatchItem]


@routes.post("/api/execute", WRITERS, status=201, keyed=True)
async def execute(call: Call, body: ExecuteRequest) -> Started:
    """Start an execution of a registered playbook.

    With an Idempotency-Key, a second request under the same key gives the execution the first one started.
    """
    return await _start(call, body, call.key)


@routes.post("/api/execute/batch", WRITERS, keyed=True)
async def execute_batch(call: Call, body: BatchRequest) -> BatchAnswer:
    """Start several executions; each succeeds or fails by itself."""
    key = call.key
    return BatchAnswer(
        results=[
            await _item(call, request, None if key is None else f"{key}/{number}")
            for number, request in enumerate(body.executions)
        ]
    )


async def _item(call: Call, request: ExecuteRequest, key: str | None) -> BatchItem:
    try:
        return BatchItem(started=await _start(call, request, key))
    except NoetlError as problem:
        return BatchItem(problem=described(problem))


async def _start(call: Call, request: ExecuteRequest, key: str | None) -> Started:
    payload = _payload(request)
    entry = await _entry(call, request)
    parent = None if request.parent_execution_id is None else parse_id(request.parent_execution_id)
    if parent is not None:
        await call.services.reading.seen(call.scope, parent)
    state = await call.services.engine.start(
        call.scope, entry, payload, requested_by=call.caller.name, key=key, parent_execution_id=parent
    )
    if key is not None:
        await _check_same(call, state, entry, payload, key)
    return started(state)


def started(state: State) -> Started:
    """Describe an execution that was just started."""
    token = str(execution_token(state.execution_id, state.version))
    return combined(Started, state, commands_generated=open_commands(state), read_token=token)


def _payload(request: ExecuteRequest) -> dict[str, Any]:
    given = [value for value in (request.payload, request.workload) if not isinstance(value, UnsetType)]
    if len(given) == 2 and given[0] != given[1]:
        raise InputError("payload and workload are two names of the same, and differ", hint="give payload alone")
    return given[0] if given else {}


async def _entry(call: Call, request: ExecuteRequest) -> Entry:
    if (request.path is None) == (request.catalog_id is None):
        raise InputError("name the playbook by path or by catalog_id, one of them")
    if request.catalog_id is not None:
        entry = await call.services.catalog.by_id(call.scope, request.catalog_id)
        if request.version not in (None, entry.version):
            raise InputError(f"{request.catalog_id} is version {entry.version} of {entry.path}, not {request.version}")
        return entry
    assert request.path is not None
    return await call.services.catalog.get(call.scope, request.path, request.version)


async def _check_same(call: Call, state: State, entry: Entry, payload: dict[str, Any], key: str) -> None:
    """Refuse a key that stands for an execution of something else."""
    plan = await call.services.catalog.plan(call.scope, state.catalog_id)
    if state.path == entry.path:
        asked = await call.services.catalog.plans.evaluating.run(
            call.scope,
            lambda: plan.workload.in_force(payload, execution_id=state.execution_id, catalog_id=state.catalog_id),
        )
        if state.workload == asked:
            return
    raise reused(key, state.execution_id)
