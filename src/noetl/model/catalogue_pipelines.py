"""The event types of data pipelines: DAG versions, datasets, partitions and tasks. Joined to the others by `catalogue`.

Every row of a pipeline follows from the events of one stream in their order: `dag/<dag>`, `dataset/<generation>`,
`partition/<id>`, `task/<id>` or `state/<generation>`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType


class DagVersionCreated(msgspec.Struct, frozen=True):
    """Which version of which DAG, the digests of what it is made of, and who deployed it."""

    dag_version_id: str
    dag: str
    bundle_digest: str
    code_digest: str
    yaml_hash: str
    by: str = ""


class DagVersionPointers(msgspec.Struct, frozen=True):
    """The generation of every dataset, the published names, and the jobs whose generation is built anew."""

    pointers: dict[str, str]
    publish: dict[str, str] = {}
    built: list[str] = []


class DagVersionNamed(msgspec.Struct, frozen=True):
    """Which version this is about, and who says it."""

    dag_version_id: str
    by: str = ""


class DagVersionMoved(msgspec.Struct, frozen=True):
    """Which version is current now, which one was before, and who switched."""

    dag_version_id: str
    previous: str | None = None
    by: str = ""


class JobRegistered(msgspec.Struct, frozen=True):
    """One job of a version with what decides how its tasks run."""

    job_id: str
    dag_version_id: str
    dag: str
    generation: str
    job_hash: str
    runtime: str
    operator: str
    activation: str
    update_strategy: str
    max_attempts: int
    lease_seconds: int | float
    execution_strategy: str | None = None
    max_concurrency: int | None = None
    timeout_seconds: int | float | None = None
    by: str = ""


class DatasetRegistered(msgspec.Struct, frozen=True):
    """What builds the dataset and what it is called."""

    dataset_uuid: str
    name: str
    dag: str
    job: str
    output: int
    published: bool = False
    by: str = ""


class GenerationCreated(msgspec.Struct, frozen=True):
    """One build of a dataset and where its files lie."""

    dataset_uuid: str
    dataset_version: str
    generation: str
    config_hash: str
    storage_location: str
    by: str = ""


class SchemaSet(msgspec.Struct, frozen=True):
    """Whose schema it is, and whether it is the first."""

    dataset_uuid: str
    dataset_version: str
    schema_hash: str
    change: Literal["first", "evolved"]


class PartitionCommitted(msgspec.Struct, frozen=True):
    """What a reader sees of the partition from now on, and how much of it this commit brought."""

    dataset_uuid: str
    dataset_version: str
    partition_key: str
    version: int
    task_id: str
    attempt: int
    rows: int
    bytes: int
    files: int
    schema_hash: str
    content_digest: str
    update: Literal["append", "replace"]
    rows_added: int | None = None
    bytes_added: int | None = None


class PartitionDropped(msgspec.Struct, frozen=True):
    """Which partition is gone."""

    dataset_uuid: str
    dataset_version: str
    partition_key: str
    version: int
    task_id: str


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

PIPELINE_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dag.version_created",
        sentence="A version of a DAG was deployed and its new generations are to be built.",
        aggregate="dag",
        needs=("payload_ref",),
        meta=DagVersionCreated,
        context=DagVersionPointers,
    ),
    EventType(
        name="job.registered",
        sentence="A job was registered as part of a version of its DAG.",
        aggregate="dag",
        needs=_JOB,
        meta=JobRegistered,
    ),
    EventType(
        name="dataset.registered",
        sentence="A dataset was registered, or was given another name.",
        aggregate="dag",
        meta=DatasetRegistered,
    ),
    EventType(
        name="dataset.generation_created",
        sentence="A new build of a dataset began.",
        aggregate="dag",
        meta=GenerationCreated,
    ),
    EventType(
        name="dag.ready",
        sentence="All generations of a version were built and it may be activated.",
        aggregate="dag",
        meta=DagVersionNamed,
    ),
    EventType(
        name="dag.build_failed",
        sentence="The build of a version failed, and why.",
        aggregate="dag",
        meta=DagVersionNamed,
    ),
    EventType(
        name="dag.activated",
        sentence="All datasets of the DAG were switched to the generations of another version.",
        aggregate="dag",
        meta=DagVersionMoved,
    ),
    EventType(
        name="dag.rolled_back",
        sentence="All datasets of the DAG were switched back to the generations of an earlier version.",
        aggregate="dag",
        meta=DagVersionMoved,
    ),
    EventType(
        name="dataset.schema_set",
        sentence="The columns of a generation were fixed or changed.",
        aggregate="dataset",
        meta=SchemaSet,
    ),
    EventType(
        name="partition.committed",
        sentence="The files of a partition were made visible.",
        aggregate="partition",
        needs=("node_name", "payload_ref"),
        meta=PartitionCommitted,
    ),
    EventType(
        name="partition.dropped",
        sentence="A partition was taken out of its generation.",
        aggregate="partition",
        meta=PartitionDropped,
    ),
    EventType(
        name="task.created",
        sentence="A unit of a job's work was made available.",
        aggregate="task",
        needs=_JOB,
        meta=TaskCreated,
    ),
    EventType(
        name="task.claimed", sentence="A worker took a lease on a task.", aggregate="task", needs=_JOB, meta=TaskClaimed
    ),
    EventType(
        name="task.started",
        sentence="The place where an attempt runs was recorded.",
        aggregate="task",
        needs=_JOB,
        meta=TaskStarted,
    ),
    EventType(
        name="task.attempt_failed",
        sentence="One attempt at a task failed; another may follow.",
        aggregate="task",
        needs=_JOB,
        meta=TaskAttemptEnded,
    ),
    EventType(
        name="task.abandoned",
        sentence="The task's lease ran out and the task is free again.",
        aggregate="task",
        needs=_JOB,
        meta=TaskAttemptEnded,
    ),
    EventType(
        name="task.completed",
        sentence="A task's work is done and its outputs are visible.",
        aggregate="task",
        needs=_JOB,
        meta=TaskEnded,
    ),
    EventType(
        name="task.skipped",
        sentence="A task was passed over because the same work was done before.",
        aggregate="task",
        needs=_JOB,
        meta=TaskSkipped,
    ),
    EventType(name="task.failed", sentence="A task failed for good.", aggregate="task", needs=_JOB, meta=TaskEnded),
    EventType(
        name="task.cancel_requested",
        sentence="Somebody asked for the end of a task.",
        aggregate="task",
        needs=_JOB,
    ),
    EventType(name="task.cancelled", sentence="A task was cancelled.", aggregate="task", needs=_JOB, meta=TaskEnded),
    EventType(
        name="task.retried",
        sentence="A task that ended was made available again by hand.",
        aggregate="task",
        needs=_JOB,
        meta=TaskRetried,
    ),
    EventType(
        name="job.state_saved",
        sentence="What an operator keeps between tasks was recorded.",
        aggregate="job",
        needs=_JOB,
        meta=StateSaved,
    ),
)
"""In the order a pipeline meets them."""
