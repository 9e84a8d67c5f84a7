"""What a worker is given when it claims a task of a dataset job, and what it reports back. Values only."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.model.dataset import Field, FileEntry, Manifest
from noetl.model.lease import Proof
from noetl.model.lineage import Lineage
from noetl.model.payload_ref import PayloadRef

TaskStatus = Literal["Queued", "Running", "Completed", "Skipped", "Failed", "Canceled"]


class TaskLease(msgspec.Struct, frozen=True, kw_only=True):
    """The fence of every later write: only this attempt with this token may change the task."""

    task_id: str
    attempt: int
    token: str
    seconds: float

    @property
    def proof(self) -> Proof:
        """It as the holder of a row shows it."""
        return Proof((self.task_id,), self.attempt, self.token)


class InputPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition of an input, pinned: its manifest, and the version the consumer has seen already (PerUpdate)."""

    partition_key: str
    version: int
    manifest: PayloadRef
    after: int = 0
    """Files of versions up to this were consumed before and are not read again; 0 reads all."""


class TaskInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An input as the task reads it."""

    alias: str
    dataset_uuid: str
    dataset_version: str
    parts: tuple[InputPart, ...] = ()
    where: dict[str, Any] = {}
    partition_by: tuple[str, ...] = ()
    schema: tuple[Field, ...] = ()
    """The generation's schema, where one is known: the columns of an input without any part."""


class TaskTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An output the task may commit to."""

    output: int
    dataset_uuid: str
    dataset_version: str
    dataset_name: str
    location: str
    """The generation's prefix relative to the lake, ending in `/`."""
    partition_by: tuple[str, ...] = ()
    update_strategy: Literal["append", "replace"] = "replace"
    unique_key: tuple[str, ...] = ()
    schema: tuple[Field, ...] = ()
    """The generation's schema so far; empty before the first commit."""
    declared: tuple[Field, ...] = ()
    evolve: Literal["refuse", "add_columns", "widen", "any"] = "refuse"
    parts: tuple[InputPart, ...] = ()
    """What stands already of the partitions the task may touch: the base of an append."""


class TaskGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a worker needs for one attempt at one task; the same for every runtime."""

    lease: TaskLease
    execution_id: int
    job_id: str
    dag: str
    job: str
    dag_version_id: str
    operator: str
    runtime: str
    partition_key: str
    strategy: Literal["PerUpdate", "PerPartition"] | None
    config: dict[str, Any]
    bundle: PayloadRef
    """The DAG's files: YAML, SQL, Python, requirements."""
    code_digest: str
    """Digest of the Python part of the bundle: one driver process serves one of these."""
    inputs: tuple[TaskInput, ...] = ()
    targets: tuple[TaskTarget, ...] = ()
    checks: tuple[dict[str, Any], ...] = ()
    spark: dict[str, str] = {}
    timeout_seconds: float | None = None
    secrets: tuple[str, ...] = ()
    udf: dict[str, Any] | None = None
    operator_state: dict[str, Any] = {}
    """What the operator saved with its last commit of this generation."""
    sent: PayloadRef | None = None
    """What was sent to a webhook source to start the task."""
    source: str | None = None
    """What starts the job, if it is a source."""
    idle_seconds: float | None = None
    """How long whoever serves the job's code waits for more of it before it is let go; None is as long as there is room."""
    left: tuple[str, str] | None = None
    """Spark application and tag of an attempt before this one, which may still run where Spark outlives its driver."""


class PartitionWrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt wrote for one partition of one output; nothing is visible before its commit."""

    output: int
    partition_key: str
    schema: tuple[Field, ...]
    files: tuple[FileEntry, ...]
    """Only files of this attempt."""
    base_version: int = 0
    """The version of the partition the rows were made unique against; 0 if there was none."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one check came out."""

    label: str
    passed: bool
    severity: Literal["block", "warn"]
    violations: int = 0
    detail: str = ""
    output: int = 0


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt came to, told by the worker that held its lease."""

    status: Literal["ok", "error", "canceled"]
    writes: tuple[PartitionWrite, ...] = ()
    dropped: tuple[tuple[int, str], ...] = ()
    """Partitions (output, key) that a whole replacement no longer has."""
    checks: tuple[CheckResult, ...] = ()
    operator_state: dict[str, Any] | None = None
    metrics: dict[str, Any] = {}
    lineage: dict[int, Lineage] = {}
    """Which columns of each output come from which of the inputs, by their aliases."""
    logs: PayloadRef | None = None
    error: str | None = None
    error_kind: str | None = None
    retryable: bool = True


def merged(
    base: Manifest | None, write: PartitionWrite, version: int, dataset_version: str, *, append: bool
) -> Manifest:
    """Return the manifest of a partition after a commit: old files and new for `append`, new ones alone otherwise."""
    kept = base.files if append and base is not None else ()
    new = tuple(msgspec.structs.replace(entry, added=version) for entry in write.files)
    return Manifest(
        dataset_version=dataset_version,
        partition_key=write.partition_key,
        version=version,
        schema=write.schema,
        files=(*kept, *new),
    )
