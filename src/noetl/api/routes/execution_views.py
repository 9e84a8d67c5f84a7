"""What the routes of executions take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from noetl.api.wire import Body, Id, Name, ReadTokenText, Text, View
from noetl.model.payload_ref import PayloadRef


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


class ExecutionStatus(View, frozen=True, kw_only=True):
    """How an execution is, as of a position."""

    execution_id: str
    status: str
    ended: bool
    error: str | None
    failed_step: str | None
    swallowed_errors: int
    as_of_position: int
    as_of_event_id: str


class ExecutionView(ExecutionStatus, frozen=True, kw_only=True):
    """An execution with what it works on and what came of it."""

    path: str
    version: int | None
    catalog_id: str
    playbook_digest: str
    parent_execution_id: str | None
    requested_at: datetime | None
    ended_at: datetime | None
    workload: dict[str, Any]
    active_steps: list[str]
    open_commands: int
    steps_entered: dict[str, int]
    result_step: str | None
    result: Any
    result_ref: PayloadRef | None


class EventsPage(View, frozen=True, kw_only=True):
    """Events by position; `next_position` is null when there are no more yet."""

    events: list[dict[str, Any]]
    next_position: int | None


class CancellationCheck(View, frozen=True, kw_only=True):
    """Whether work for an execution is still wanted."""

    execution_id: str
    cancelled: bool
    status: str


class CancelAnswer(View, frozen=True, kw_only=True):
    """Which executions were cancelled by this request."""

    execution_id: str
    status: str
    cancelled: list[str]
    read_token: ReadTokenText


class FinalizeAnswer(ExecutionStatus, frozen=True, kw_only=True):
    """How an execution is after it was looked at again."""

    read_token: ReadTokenText
