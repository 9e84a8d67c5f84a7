"""The event types of DAG versions and of datasets: jobs, generations, columns, partitions and column lineage.

A DAG's events are in one stream, `dag/<dag>`. Rows of data follow from the events of one stream in their order.
`catalogue` joins all types.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType
from noetl.model.lineage import How


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


class LineageSet(msgspec.Struct, frozen=True):
    """Whose lineage it is, and who said so."""

    dataset_uuid: str
    dataset_version: str
    lineage_hash: str
    how: How
    version: int
    """Counted from 1 within the generation."""


DATASET_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dataset.schema_set",
        sentence="The columns of a generation were fixed or changed.",
        aggregate="dataset",
        meta=SchemaSet,
        opens=("dataset_schema",),
    ),
    EventType(
        name="partition.committed",
        sentence="The files of a partition were made visible.",
        aggregate="partition",
        needs=("node_name", "payload_ref"),
        meta=PartitionCommitted,
        opens=("partition_version", "outbox"),
        changes=("partition_version",),
    ),
    EventType(
        name="partition.dropped",
        sentence="A partition was taken out of its generation.",
        aggregate="partition",
        meta=PartitionDropped,
        opens=("partition_version", "outbox"),
        changes=("partition_version",),
    ),
)
"""In the order a generation meets them."""

LINEAGE_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dataset.lineage_set",
        sentence="It was recorded which columns of a generation come from which.",
        aggregate="dataset",
        needs=("node_name",),
        meta=LineageSet,
        opens=("dataset_lineage", "column_lineage"),
    ),
)
"""What is said about a generation beside its data."""


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


DAG_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dag.version_created",
        sentence="A version of a DAG was deployed and its new generations are to be built.",
        aggregate="dag",
        needs=("payload_ref",),
        meta=DagVersionCreated,
        context=DagVersionPointers,
        opens=("dag_version", "dag_version_dataset"),
        changes=("dag_version", "dag_version_dataset"),
        ends=("dag_version_dataset",),
    ),
    EventType(
        name="job.registered",
        sentence="A job was registered as part of a version of its DAG.",
        aggregate="dag",
        needs=("node_name",),
        meta=JobRegistered,
        opens=("job",),
        changes=("job",),
    ),
    EventType(
        name="dataset.registered",
        sentence="A dataset was registered, or was given another name.",
        aggregate="dag",
        meta=DatasetRegistered,
        opens=("dataset",),
        changes=("dataset",),
    ),
    EventType(
        name="dataset.generation_created",
        sentence="A new build of a dataset began.",
        aggregate="dag",
        meta=GenerationCreated,
        opens=("dataset_version",),
    ),
    EventType(
        name="dag.ready",
        sentence="All generations of a version were built and it may be activated.",
        aggregate="dag",
        meta=DagVersionNamed,
        changes=("dag_version",),
    ),
    EventType(
        name="dag.build_failed",
        sentence="The build of a version failed, and why.",
        aggregate="dag",
        meta=DagVersionNamed,
        changes=("dag_version",),
    ),
    EventType(
        name="dag.activated",
        sentence="All datasets of the DAG were switched to the generations of another version.",
        aggregate="dag",
        meta=DagVersionMoved,
        opens=("dag_current_version",),
        changes=("dag_current_version", "dag_version"),
    ),
    EventType(
        name="dag.rolled_back",
        sentence="All datasets of the DAG were switched back to the generations of an earlier version.",
        aggregate="dag",
        meta=DagVersionMoved,
        changes=("dag_current_version", "dag_version"),
    ),
)
"""In the order a DAG meets them."""
