"""What a task came to: the envelope every tool answers with and templates see as `output`; also for NoETL's errors."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.errors import Denied, InputError, NoetlError, NotFound, Unavailable, Unsupported
from noetl.model.payload_ref import PayloadRef

ProblemKind = Literal[
    "connection", "timeout", "rate_limit", "auth", "not_found", "client_error", "server_error", "schema", "parse",
    "transform", "db_connection", "db_constraint", "db_deadlock", "db_timeout", "storage_quota", "storage_access",
    "cancelled", "depth_limit", "unknown",
]  # fmt: skip


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a task failed, in words a policy can decide on. The message never holds a secret."""

    kind: ProblemKind
    message: str
    retryable: bool = False
    code: str | None = None
    source: str | None = None
    """The kind of the tool that failed."""
    http_status: int | None = None
    retry_after: float | None = None
    pg_code: str | None = None
    exception_type: str | None = None
    details: dict[str, Any] = {}


class Hidden:
    """A value that is never recorded, and does not show itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Hidden(***)"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one try at a task ended."""

    status: Literal["ok", "error"] = "ok"
    data: Any = None
    """Plain JSON values only: what tools get in other types they turn into these (see `plain`)."""
    error: Problem | None = None
    hidden: Hidden | None = None
    """What later tasks of the same list see in place of the data; it is not recorded."""
    helpers: dict[str, Any] = {}
    """What the kind adds beside: `http`, `pg` or `py`, each a small mapping."""
    artifacts: tuple[PayloadRef, ...] = ()
    """What the task put into the payload store to stay there."""

    def as_output(self, *, attempt: int, duration_ms: float, ref: Any = None) -> dict[str, Any]:
        """Return the mapping templates see as `output`."""
        return {
            "status": self.status,
            "data": self.data,
            "ref": ref,
            "error": None if self.error is None else _complete(self.error),
            "meta": {"attempt": attempt, "duration_ms": duration_ms},
            **self.helpers,
        }


def _complete(problem: Problem) -> dict[str, Any]:
    # Templates are strict about names, so every field is there, set or not.
    fields = {name: getattr(problem, name) for name in problem.__struct_fields__}
    return {**fields, "status": problem.http_status}


def failed(
    kind: ProblemKind, message: str, *, data: Any = None, helpers: dict[str, Any] | None = None, **fields: Any
) -> Outcome:
    """Return an outcome that says what went wrong."""
    return Outcome(
        status="error", data=data, error=Problem(kind=kind, message=message, **fields), helpers=helpers or {}
    )


_KINDS: tuple[tuple[type[NoetlError], ProblemKind], ...] = (
    (NotFound, "not_found"),
    (Denied, "auth"),
    (InputError, "schema"),
    (Unsupported, "schema"),
    (Unavailable, "connection"),
)


def refusal(error: NoetlError, source: str) -> Outcome:
    """Return the outcome an error of NoETL's own stands for."""
    kind = next((kind for known, kind in _KINDS if isinstance(error, known)), "unknown")
    retryable = error.disposition == "transient"
    return failed(kind, error.message, source=source, code=error.code, retryable=retryable)  # type: ignore[arg-type]
