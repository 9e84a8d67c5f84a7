"""What the routes of tasks take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from noetl.api.problems import Problem
from noetl.api.wire import Attempt, Body, Id, Name, Text, View
from noetl.dispatch.tasks.by_hand import AttemptStory
from noetl.dispatch.tasks.rows import TaskRow
from noetl.model.dataset import Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.task import InputPart, TaskGrant, TaskLease, TaskReport, TaskStatus

_Log = Annotated[str, Meta(max_length=8_000_000)]


class TaskProof(Body, frozen=True, kw_only=True):
    """The proof that a worker holds a task: the lease as it was granted."""

    task_id: UUID
    attempt: Attempt
    token: UUID
    seconds: Annotated[float, Meta(ge=0, le=1e9)]

    def lease(self) -> TaskLease:
        """Return it as the engine knows it."""
        return TaskLease(task_id=str(self.task_id), attempt=self.attempt, token=str(self.token), seconds=self.seconds)


class TaskClaimRequest(Body, frozen=True, kw_only=True):
    """Who wants tasks, for which runtimes, how many, and how long it waits for the first."""

    worker_id: Name
    runtimes: Annotated[list[Name], Meta(min_length=1, max_length=20)]
    want: Annotated[int, Meta(ge=1, le=1_000)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0
    like: UUID | None = None
    """The id of a job: only its tasks are given then."""


class TaskClaimAnswer(View, frozen=True, kw_only=True):
    """Tasks of one job, leased to the worker."""

    tasks: list[TaskGrant]


class TaskLeaseRequest(Body, frozen=True, kw_only=True):
    """Which task is meant, by its lease."""

    lease: TaskProof


class TaskGrantAnswer(View, frozen=True, kw_only=True):
    """A task under a lease."""

    task: TaskGrant


class TaskLeasesRequest(Body, frozen=True, kw_only=True):
    """Leases that are to last longer."""

    leases: Annotated[list[TaskProof], Meta(max_length=10_000)]


class TaskLeasesAnswer(View, frozen=True, kw_only=True):
    """Those that are lost: somebody else has the task, or it has ended or been cancelled."""

    lost: list[TaskLease]


class TaskStartedRequest(Body, frozen=True, kw_only=True):
    """Where an attempt is about to run."""

    lease: TaskProof
    application_id: Name
    job_tag: Name


class TaskEndRequest(Body, frozen=True, kw_only=True):
    """What an attempt came to. A log may be given as text by those who do not store payloads themselves."""

    lease: TaskProof
    report: TaskReport
    log: _Log | None = None
    operator_state_before: dict[str, Any] | None = None
    """What the operator's state was in the grant, where the report has a new one."""


class TaskEndAnswer(View, frozen=True, kw_only=True):
    """What the task is now."""

    status: TaskStatus


class MovedPart(View, frozen=True, kw_only=True):
    """A partition that another commit reached first, as a grant would say it, and with its manifest."""

    output: int
    part: InputPart
    manifest: Manifest


class MovedProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """Why a commit was refused, with what its rows have to be made unique against before it is tried again."""

    moved: tuple[MovedPart, ...] = ()


class TasksQuery(Body, frozen=True, kw_only=True):
    """Which tasks to list."""

    cursor: Id | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    dag: Name | None = None
    job: Name | None = None
    status: TaskStatus | None = None
    execution_id: Id | None = None


class LogQuery(Body, frozen=True, kw_only=True):
    """Which attempt's log; the last one that left any unless told."""

    attempt: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class TaskCancelRequest(Body, frozen=True, kw_only=True):
    """Why to stop."""

    reason: Annotated[Text, Meta(min_length=1)] = "cancelled by request"


class TaskView(View, frozen=True, kw_only=True):
    """A task as it stands. `open` is true while it waits, runs, or will be tried again."""

    task_id: str
    job_id: str
    dag_version_id: str
    dag: str
    job: str
    generation: str
    execution_id: str
    partition_key: str
    status: TaskStatus
    open: bool
    attempt: int
    max_attempts: int
    runtime: str
    worker: str | None
    lease_until: datetime | None
    available_at: datetime | None
    cancel_requested: bool
    application_id: str | None
    job_tag: str | None
    error: str | None
    outputs: Any
    logs_ref: PayloadRef | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    skipped_as: str | None


class TaskPage(View, frozen=True, kw_only=True):
    """Tasks, the newest first; `next_cursor` is null on the last page."""

    tasks: list[TaskView]
    next_cursor: str | None


class TaskDetail(TaskView, frozen=True, kw_only=True):
    """A task with what it reads and its attempts."""

    inputs: list[dict[str, Any]]
    attempts: list[AttemptStory]


def task_fields(task: TaskRow) -> dict[str, Any]:
    """Return what callers see of a task; its lease's token is its worker's alone."""
    fields = {name: getattr(task, name) for name in TaskView.__struct_fields__}
    return fields | {"execution_id": str(task.execution_id)}
