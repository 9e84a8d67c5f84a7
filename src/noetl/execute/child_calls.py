"""Tasks inside a sequence or a row that run playbooks: a call goes in, the outcome of the child execution comes out."""

from __future__ import annotations

from typing import Any

from noetl.dispatch.child_ends import failure_of
from noetl.dispatch.grants import Child, CommandGrant
from noetl.dispatch.port import Dispatch
from noetl.errors import ChildTooDeep, InputError, NotFound
from noetl.execute.agent_calls import run_agent
from noetl.execute.compiled import CompiledTask
from noetl.execute.outcome import Outcome, failed
from noetl.execute.services import Redaction
from noetl.execute.tools.port import Call


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
