"""The envelope every agent answers in: what its work came to goes in, the same fields come out whatever the agent is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call
from noetl.errors import InputError

SOURCE: Final = "agent"
FRAMEWORKS: Final = ("noetl", "custom")


def payload_of(call: Call) -> dict[str, Any]:
    """Return what an agent is given: the task's input, and its payload over that."""
    return {**call.input, **mapping(call, "payload")}


def mapping(call: Call, name: str) -> Mapping[str, Any]:
    """Return an option that is a mapping, empty if it is left out."""
    value = call.options.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} of an agent is a mapping")
    return value


def answered(call: Call, outcome: Outcome, *, execution_id: str, seconds: float, more: Mapping[str, Any]) -> Outcome:
    """Return an outcome with its data in an envelope; a failure keeps the envelope as its data.

    `more` stands beside the fields of the error.
    """
    envelope: dict[str, Any] = {
        "status": outcome.status,
        "framework": call.options.get("framework"),
        "entrypoint": call.options.get("entrypoint"),
        "data": outcome.data,
        "execution_id": execution_id,
        "duration": round(seconds, 3),
    }
    problem = outcome.error
    if problem is None:
        return msgspec.structs.replace(outcome, data=envelope)
    envelope["error"] = {**_told(problem), **more}
    error = msgspec.structs.replace(problem, source=SOURCE)
    return msgspec.structs.replace(outcome, status="error", data=envelope, error=error)


def _told(problem: Problem) -> dict[str, Any]:
    is_playbook = (problem.code or "").startswith("child_")
    return {
        "kind": "agent.configuration" if problem.kind in ("schema", "not_found") else "agent.execution",
        "code": "PLAYBOOK_FAILED" if is_playbook else problem.code or problem.kind,
        "message": problem.message,
        "retryable": problem.retryable,
    }
