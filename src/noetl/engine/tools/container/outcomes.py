"""How a container's end is told: what Kubernetes or a container engine says goes in, an outcome comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from noetl.engine.tools.outcome import Outcome, ProblemKind, failed
from noetl.engine.tools.programs.process import MAX_OUTPUT

KIND: Final = "container"

_REASONS: Final[Mapping[str, tuple[ProblemKind, bool, str]]] = {
    "OOMKilled": ("storage_quota", False, "it used more memory than its limit"),
    "DeadlineExceeded": ("timeout", True, "it did not end in time"),
    "Evicted": ("server_error", True, "its node had no room for it any more"),
    "Preempted": ("server_error", True, "its node was given to others"),
    "Shutdown": ("server_error", True, "its node was shut down"),
    "NodeLost": ("server_error", True, "its node was lost"),
    "ImagePullBackOff": ("not_found", False, "its image cannot be pulled"),
    "ErrImageNeverPull": ("not_found", False, "its image is not on the node and may not be pulled"),
    "InvalidImageName": ("schema", False, "the name of its image cannot be read"),
    "CreateContainerConfigError": ("schema", False, "it refers to something that the namespace does not have"),
    "CreateContainerError": ("schema", False, "the node cannot create it"),
    "RunContainerError": ("schema", False, "the node cannot start its program"),
    "StartError": ("schema", False, "its program cannot be started"),
    "ContainerCannotRun": ("schema", False, "its program cannot be started"),
}
STUCK: Final = frozenset(
    {
        "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
        "RunContainerError",
    }
)  # fmt: skip
"""Why a container waits that will not start by itself."""


@dataclass(frozen=True)
class Ending:
    """What is known of a container that has ended, or was given up."""

    runtime: str
    name: str
    output: str = ""
    exit_code: int | None = None
    reason: str | None = None
    """Why it failed, in the word of the system that ran it."""
    message: str = ""
    namespace: str | None = None
    pod_name: str | None = None
    succeeded: bool = False
    seconds: float = 0.0


def outcome_of(ending: Ending) -> Outcome:
    """Return the outcome of a container that ran, or could not."""
    data: dict[str, Any] = {
        "status": "completed" if ending.succeeded else "failed",
        "runtime": ending.runtime,
        "job_name": ending.name,
        "pod_name": ending.pod_name,
        "namespace": ending.namespace,
        "exit_code": ending.exit_code,
        "output": ending.output[:MAX_OUTPUT],
        "execution_time": round(ending.seconds, 3),
        "reason": ending.reason,
    }
    helpers = {"container": {"truncated": len(ending.output) > MAX_OUTPUT}}
    if ending.succeeded:
        return Outcome(data=data, helpers=helpers)
    told: dict[str, Any] = {"source": KIND, "data": data, "helpers": helpers}
    known = _REASONS.get(ending.reason or "")
    if known is not None:
        kind, retryable, words = known
        more = f": {ending.message}" if ending.message else ""
        message = f"the container {ending.name} failed with {ending.reason}: {words}{more}"
        return failed(kind, message, code=_code(ending.reason or ""), retryable=retryable, **told)
    if ending.exit_code:
        message = f"the container {ending.name} ended with exit code {ending.exit_code}"
        return failed("unknown", message, code=f"exit_{ending.exit_code}", **told)
    message = f"the container {ending.name} failed: {ending.message or ending.reason or 'no reason was given'}"
    return failed("unknown", message, code=_code(ending.reason or "failed"), retryable=True, **told)


def _code(reason: str) -> str:
    letters = (f"_{each.lower()}" if each.isupper() else each for each in reason.replace("OOM", "Oom"))
    return "".join(letters).lstrip("_")


_STATUSES: Final[Mapping[int, tuple[ProblemKind, bool]]] = {
    400: ("schema", False),
    401: ("auth", False),
    403: ("auth", False),
    404: ("not_found", False),
    409: ("client_error", True),
    422: ("schema", False),
    429: ("rate_limit", True),
}


def refused(error: Any, what: str) -> Outcome:
    """Return the outcome of a request that the cluster refused."""
    status = int(error.status or 0)
    kind, retryable = _STATUSES.get(status, ("server_error", True) if status >= 500 else ("client_error", False))
    said = _said(error.body) or str(error.reason or "")
    message = f"the cluster refuses {what} with status {status}{f': {said}' if said else ''}"
    return failed(kind, message, source=KIND, code=f"kubernetes_{status}", retryable=retryable, http_status=status)


def _said(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])[:500]
    except (TypeError, ValueError, KeyError):
        return ""
