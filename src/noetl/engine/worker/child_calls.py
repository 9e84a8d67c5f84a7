"""Tasks that run playbooks: a call goes in, the outcome of the child execution comes out, for agents in an envelope."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.grants import Child, CommandGrant
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.plan.execution_end import failure_of
from noetl.engine.tools.agent.envelope import SOURCE, answered, mapping, payload_of
from noetl.engine.tools.outcome import Outcome, failed, refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.engine.worker.compiled_step import CompiledTask
from noetl.engine.worker.services import Redaction
from noetl.errors import ChildTooDeep, InputError, NoetlError, NotFound


async def run_child(
    dispatch: Dispatch, redaction: Redaction, grant: CommandGrant, task: CompiledTask, call: Call
) -> Outcome:
    """Run a child execution to its end, or only start it where the task does not wait; an agent's is in its envelope."""

    async def run(task: CompiledTask, call: Call) -> Outcome:
        return await _run(dispatch, redaction, grant, task, call)

    return await (run_agent(run, task, call) if call.kind == "agent" else run(task, call))


async def _run(
    dispatch: Dispatch, redaction: Redaction, grant: CommandGrant, task: CompiledTask, call: Call
) -> Outcome:
    options = call.options
    child = Child(
        path=str(options.get("path") or options.get("catalog_id")),
        version=options.get("version"),
        payload={**call.input, **(options.get("payload") or {})},
        return_step=options.get("return_step") or options.get("result_step"),
        key=call.key,
        waits=options.get("wait", True) is not False,
    )
    if redaction.redact(child.payload) is not child.payload:
        # A child's workload is recorded, so a secret in it would stand in the ledger.
        return failed(
            "client_error",
            f"{task.where}: the input for {child.path} holds a secret, and inputs are recorded;"
            " let that playbook name it in its own keychain",
            code="secret_in_input",
        )
    try:
        end = await dispatch.run_child(grant, child)
    except NotFound as problem:
        return failed("not_found", problem.message)
    except ChildTooDeep as problem:
        return failed("depth_limit", problem.message, code=problem.code)
    except InputError as problem:
        return failed("transform", problem.message, code=problem.code)
    if end.status == "COMPLETED":
        child_id = str(end.execution_id)
        return Outcome(data=_with_id(end.data, child_id), helpers={"child": {"execution_id": child_id}})
    message = failure_of(end.execution_id, end.status, end.error)
    return failed(
        "unknown", message, code=f"child_{end.status.lower()}", details={"execution_id": str(end.execution_id)}
    )


def _with_id(data: Any, child_id: str) -> Any:
    """Return what a child came to with its id beside, where there is a place for it; a field of the child's own stands."""
    if data is None:
        return {"execution_id": child_id}
    return {"execution_id": child_id, **data} if isinstance(data, dict) else data


RunPlaybook = Callable[[CompiledTask, Call], Awaitable[Outcome]]

TROUBLESHOOTER: Final = "automation/agents/troubleshoot/diagnose_execution"
"""The playbook that is asked about a failure where the task names none."""
_SAYS_WHO: Final = frozenset({"troubleshoot", "troubleshoot_path"})


def is_playbook(call: Call) -> bool:
    """Tell whether the agent of a call is a playbook."""
    return call.options.get("framework") == "noetl"


async def run_agent(run: RunPlaybook, task: CompiledTask, call: Call) -> Outcome:
    """Run the playbook; of a failure, ask the playbook that `on_failure` names what was wrong."""
    started = time.perf_counter()
    try:
        payload = {**payload_of(call), **mapping(call, "invoke_kwargs")}
        diagnosing = mapping(call, "on_failure")
    except NoetlError as error:
        return refusal(error, SOURCE)
    path = str(call.options.get("entrypoint"))
    try:
        async with asyncio.timeout(ahead_of(call.timeout)):
            outcome = await run(task, _child(call, path, payload, call.key, version=call.options.get("version")))
    except TimeoutError:
        message = f"the playbook {path} did not end within {call.timeout:g} seconds"
        outcome = failed("timeout", message, code="agent_timeout", retryable=True)
    details = {} if outcome.error is None else outcome.error.details
    execution_id = str(outcome.helpers.get("child", details).get("execution_id") or "")
    more: dict[str, Any] = {}
    if outcome.status == "error" and execution_id and diagnosing.get("troubleshoot"):
        more = await _diagnosis(run, task, call, {**diagnosing, "execution_id": execution_id})
    seconds = time.perf_counter() - started
    return answered(call, outcome, execution_id=execution_id, seconds=seconds, more=more)


async def _diagnosis(run: RunPlaybook, task: CompiledTask, call: Call, about: dict[str, Any]) -> dict[str, Any]:
    """Return what the troubleshooter says; one that cannot be asked, or fails, changes nothing about the failure."""
    named = about.get("troubleshoot_path") or about["troubleshoot"]
    path = named if isinstance(named, str) else TROUBLESHOOTER
    payload = {name: value for name, value in about.items() if name not in _SAYS_WHO}
    outcome = await run(task, _child(call, path, payload, f"{call.key}/diagnosis"))
    if outcome.status == "error":
        return {}
    found = outcome.data.get("diagnosis") if isinstance(outcome.data, dict) else None
    return {"diagnosis": found if isinstance(found, dict) else outcome.data}


def _child(call: Call, path: str, payload: dict[str, Any], key: str, *, version: Any = None) -> Call:
    options = {"path": path, "version": version}
    return msgspec.structs.replace(call, kind="playbook", options=options, input=payload, key=key)
