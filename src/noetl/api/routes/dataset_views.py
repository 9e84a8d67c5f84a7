"""What the routes of datasets take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from noetl.api.wire import NO_NUL, Body, Name, Text, View
from noetl.catalog.dataset_rows import Dataset, Partition
from noetl.model.dataset import Field
from noetl.model.payload_ref import PayloadRef
from noetl.pipelines.reading import Use

_Point = Annotated[str, Meta(min_length=1, max_length=17_000, pattern=NO_NUL)]


class DatasetsQuery(Body, frozen=True, kw_only=True):
    """Which datasets to list."""

    cursor: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    published: bool = False
    """Only those that are published under a name."""


class SeenQuery(Body, frozen=True, kw_only=True):
    """Which generation, and as of when: what readers have now unless told."""

    generation: Name | None = None
    as_of: _Point | None = None


class PartitionsQuery(SeenQuery, frozen=True, kw_only=True):
    """Which partitions to list."""

    cursor: Annotated[str, Meta(min_length=1, max_length=10_000, pattern=NO_NUL)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class HeadQuery(SeenQuery, frozen=True, kw_only=True):
    """Which rows to give; `where` is COLUMN=VALUE and may be given several times."""

    rows: Annotated[int, Meta(ge=1, le=1_000)] = 20
    where: Text | None = None


class ListedDataset(View, frozen=True, kw_only=True):
    """A dataset and what readers find in it now; no generation where no version of its DAG serves it."""

    dataset: Dataset
    dataset_version: str | None
    partitions: int
    rows: int
    bytes: int
    last_commit: datetime | None


class DatasetPage(View, frozen=True, kw_only=True):
    """Datasets by name; `next_cursor` is null on the last page."""

    datasets: list[ListedDataset]
    next_cursor: str | None


class SchemaView(View, frozen=True, kw_only=True):
    """The columns of a generation; none before its first commit."""

    dataset_version: str
    columns: tuple[Field, ...]
    as_of: str


class SeenView(View, frozen=True, kw_only=True):
    """One generation of a dataset, fixed: asked for again with the same `as_of`, it is the same."""

    dataset: Dataset
    dataset_version: str
    partition_by: tuple[str, ...]
    columns: tuple[Field, ...]
    partitions: int
    rows: int
    bytes: int
    checksum: str
    as_of: str
    readers: list[str]
    """The roles that read it; none where the whole organization does."""


class ReaderRequest(Body, frozen=True, kw_only=True):
    """Which role is meant."""

    role: Name


class ReadersRequest(Body, frozen=True, kw_only=True):
    """Which role is meant, or all of them."""

    role: Name | None = None
    all: bool = False


class ReadersView(View, frozen=True, kw_only=True):
    """The roles that read a dataset; none where the whole organization does."""

    dataset: Dataset
    readers: list[str]


class GenerationView(View, frozen=True, kw_only=True):
    """One build of a dataset, and what it is used for."""

    dataset_version: str
    generation: str
    use: Use
    dag_versions: tuple[str, ...]
    config_hash: str
    storage_location: str
    partition_by: tuple[str, ...]
    created_at: datetime


class GenerationList(View, frozen=True, kw_only=True):
    """Every build of a dataset, the newest first."""

    dataset: Dataset
    generations: list[GenerationView]


class PartitionView(View, frozen=True, kw_only=True):
    """A partition at one of its versions."""

    partition_key: str
    version: int
    rows: int
    bytes: int
    files: int
    schema_hash: str | None
    content_digest: str | None
    manifest: PayloadRef | None
    task_id: str
    committed_at: datetime


class PartitionPage(View, frozen=True, kw_only=True):
    """Partitions by key; `next_cursor` is null on the last page."""

    dataset_version: str
    partitions: list[PartitionView]
    as_of: str
    next_cursor: str | None


class HeadView(View, frozen=True, kw_only=True):
    """The first rows of a dataset; numbers that JSON lacks, times and bytes are text."""

    dataset_version: str
    columns: tuple[Field, ...]
    rows: list[dict[str, Any]]
    checksum: str
    as_of: str


def partition_view(one: Partition) -> PartitionView:
    """Return a partition as callers see it."""
    return PartitionView(
        partition_key=one.partition_key,
        version=one.version,
        rows=one.rows,
        bytes=one.bytes,
        files=one.files,
        schema_hash=one.schema_hash,
        content_digest=one.content_digest,
        manifest=one.manifest_ref,
        task_id=one.task_id,
        committed_at=one.committed_at,
    )
