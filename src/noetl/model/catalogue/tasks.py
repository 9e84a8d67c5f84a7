"""The event types of tasks and of what operators keep between them. Joined to the others by `catalogue`.

Every row follows from the events of one stream in their order: `task/<id>` or `state/<generation>`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.model.event_type import EventType


class TaskCreated(msgspec.Struct, frozen=True):
    """Which unit of which job."""

    task_id: str
    job_id: str
    dag_version_id: str
    dag: str
    job: str
    generation: str
    dedupe_key: str
    partition_key: str
    runtime: str
    max_attempts: int
    lease_seconds: int | float
    memo_key: str | None = None


class TaskClaimed(msgspec.Struct, frozen=True):
    """Who works on the task, for the how-manieth time."""

    attempt: int
    worker: str
    lease_token: str
    lease_seconds: int | float


class TaskStarted(msgspec.Struct, frozen=True):
    """Where the attempt runs, so that it can be interrupted from elsewhere."""

    attempt: int
    application_id: str | None = None
    job_tag: str | None = None


class TaskAttemptEnded(msgspec.Struct, frozen=True):
    """Which attempt came to nothing, and when the next may begin."""

    attempt: int
    delay_seconds: int | float = 0
    error_kind: str | None = None


class TaskEnded(msgspec.Struct, frozen=True):
    """Which attempt was the last."""

    attempt: int


class TaskSkipped(msgspec.Struct, frozen=True):
    """The task that did the same work before."""

    as_task: str


class TaskRetried(msgspec.Struct, frozen=True):
    """How many attempts were granted besides."""

    extra_attempts: int


class StateSaved(msgspec.Struct, frozen=True):
    """Whose state, under which key."""

    generation: str
    state_key: str


_JOB: Final = ("node_name",)

TASK_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="task.created",
        sentence="A unit of a job's work was made available.",
        aggregate="task",
        needs=_JOB,
        meta=TaskCreated,
        opens=("task", "task_input", "outbox"),
    ),
    EventType(
        name="task.claimed",
        sentence="A worker took a lease on a task.",
        aggregate="task",
        needs=_JOB,
        meta=TaskClaimed,
        changes=("task",),
        attempt="begun",
    ),
    EventType(
        name="task.started",
        sentence="The place where an attempt runs was recorded.",
        aggregate="task",
        needs=_JOB,
        meta=TaskStarted,
        changes=("task",),
        keeps_lease=True,
    ),
    EventType(
        name="task.attempt_failed",
        sentence="One attempt at a task failed; another may follow.",
        aggregate="task",
        needs=_JOB,
        meta=TaskAttemptEnded,
        opens=("outbox",),
        changes=("task",),
        attempt="attempt_failed",
    ),
    EventType(
        name="task.abandoned",
        sentence="The task's lease ran out and the task is free again.",
        aggregate="task",
        needs=_JOB,
        meta=TaskAttemptEnded,
        opens=("outbox",),
        changes=("task",),
        attempt="abandoned",
    ),
    EventType(
        name="task.completed",
        sentence="A task's work is done and its outputs are visible.",
        aggregate="task",
        needs=_JOB,
        meta=TaskEnded,
        opens=("dataset_cursor",),
        changes=("task", "dataset_cursor"),
        attempt="completed",
    ),
    EventType(
        name="task.skipped",
        sentence="A task was passed over because the same work was done before.",
        aggregate="task",
        needs=_JOB,
        meta=TaskSkipped,
        opens=("dataset_cursor",),
        changes=("task", "dataset_cursor"),
        attempt="skipped",
    ),
    EventType(
        name="task.failed",
        sentence="A task failed for good.",
        aggregate="task",
        needs=_JOB,
        meta=TaskEnded,
        changes=("task",),
        attempt="failed",
    ),
    EventType(
        name="task.cancel_requested",
        sentence="Somebody asked for the end of a task.",
        aggregate="task",
        needs=_JOB,
        changes=("task",),
        keeps_lease=True,
    ),
    EventType(
        name="task.cancelled",
        sentence="A task was cancelled.",
        aggregate="task",
        needs=_JOB,
        meta=TaskEnded,
        changes=("task",),
        attempt="cancelled",
    ),
    EventType(
        name="task.retried",
        sentence="A task that ended was made available again by hand.",
        aggregate="task",
        needs=_JOB,
        meta=TaskRetried,
        opens=("outbox",),
        changes=("task", "outbox"),
    ),
    EventType(
        name="job.state_saved",
        sentence="What an operator keeps between tasks was recorded.",
        aggregate="job",
        needs=_JOB,
        meta=StateSaved,
        opens=("operator_state",),
        changes=("operator_state",),
    ),
)
"""In the order a task meets them."""
