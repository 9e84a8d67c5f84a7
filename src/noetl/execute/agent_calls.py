"""A task of kind `agent` whose agent is a playbook: its call goes in, what the child came to comes out in an envelope."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.execute.compiled import CompiledTask
from noetl.execute.outcome import Outcome, failed
from noetl.execute.tools.agent.envelope import SOURCE, answered, mapping, payload_of
from noetl.execute.tools.port import Call
from noetl.execute.tools.refusals import refusal
from noetl.execute.tools.shell_process import ahead_of

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
