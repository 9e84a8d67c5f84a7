"""Datasets, generations and partitions as they stand in the database: rows go in, values come out. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.canonical import digest_of
from noetl.model.payload_ref import PayloadRef

DATASET: Final = (
    "d.dataset_uuid::text AS dataset_uuid, d.name, d.producer_dag AS dag, d.producer_job AS job,"
    " d.producer_output_index AS output, d.published, d.read_roles, d.created_at"
)
GENERATION: Final = (
    "g.dataset_version::text AS dataset_version, g.dataset_uuid::text AS dataset_uuid, g.generation::text AS generation,"
    " g.config_hash, g.storage_location, g.partition_by, g.created_at"
)
PARTITION: Final = (
    "p.partition_key, p.version, p.dropped, p.manifest_ref, p.row_count AS rows, p.bytes, p.files, p.schema_hash,"
    " p.content_digest, p.task_id::text AS task_id, p.committed_at"
)

_GENERATION = f"SELECT {GENERATION} FROM noetl.dataset_version AS g WHERE g.dataset_version::text = $1"  # noqa: S608
_CURRENT = f"SELECT {PARTITION} FROM noetl.partition_version AS p WHERE p.dataset_version = $1 AND p.current ORDER BY 1"  # noqa: S608
_EVERY = f"SELECT {PARTITION} FROM noetl.partition_version AS p WHERE p.dataset_version = $1 ORDER BY 1, 2"  # noqa: S608
_SERVED = (
    "SELECT v.dag, v.dag_version_id::text AS dag_version_id, v.pointers, v.publish FROM noetl.dag_version AS v"
    " WHERE v.dag_version_id::text = ANY ($1)"
)


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's output is called and who makes it."""

    dataset_uuid: str
    name: str
    dag: str
    job: str
    output: int
    published: bool
    read_roles: tuple[str, ...]
    created_at: datetime


class PublicGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody may see of one build of a dataset."""

    dataset_version: str
    generation: str
    config_hash: str
    storage_location: str
    partition_by: tuple[str, ...]
    created_at: datetime


class Generation(PublicGeneration, frozen=True, kw_only=True):
    """One build of a dataset."""

    dataset_uuid: str


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition at one of its versions."""

    partition_key: str
    version: int
    manifest_ref: PayloadRef | None = msgspec.field(name="manifest")
    rows: int
    bytes: int
    files: int
    schema_hash: str | None
    content_digest: str | None
    task_id: str
    committed_at: datetime


class Partition(PartitionView, frozen=True, kw_only=True):
    """A partition as its row has it; a dropped one has no manifest."""

    dropped: bool


class DatasetView(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as one reader sees it throughout: one generation, its partitions at fixed versions."""

    dataset: Dataset
    generation: Generation | None
    """None as long as no version of its DAG serves readers."""
    partitions: tuple[Partition, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(partition.rows for partition in self.partitions)

    @property
    def checksum(self) -> str:
        """One digest of all that is seen: equal digests prove equal data, file by file."""
        return checksum(self.dataset.dataset_uuid, self.generation, self.partitions)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a DAG that serves readers: the generation of each dataset, and what is published as what."""

    dag: str
    dag_version_id: str
    pointers: dict[str, str]
    publish: dict[str, str]


def checksum(dataset_uuid: str, generation: Generation | None, partitions: tuple[Partition, ...]) -> str:
    """Digest a dataset: its generation, and each partition with its version and what a reader finds in it."""
    parts = sorted([part.partition_key, str(part.version), part.content_digest] for part in partitions)
    return digest_of([dataset_uuid, None if generation is None else generation.dataset_version, parts])


def dataset_of(row: Any) -> Dataset:
    """Read a row selected with `DATASET`."""
    return msgspec.convert(dict(row), Dataset)


def generation_of(row: Any) -> Generation:
    """Read a row selected with `GENERATION`."""
    return msgspec.convert({**row, "partition_by": orjson.loads(row["partition_by"])}, Generation)


def partition_of(row: Any) -> Partition:
    """Read a row selected with `PARTITION`."""
    ref = row["manifest_ref"]
    return msgspec.convert({**row, "manifest": None if ref is None else orjson.loads(ref)}, Partition)


async def read_generation(connection: Connection, dataset_version: str) -> Generation | None:
    """Return a generation by its id."""
    row = await connection.fetchrow(_GENERATION, dataset_version)
    return None if row is None else generation_of(row)


async def current_partitions(connection: Connection, dataset_version: str) -> list[Partition]:
    """Return each partition of a generation as it stands, also those that were dropped."""
    return [partition_of(row) for row in await connection.fetch(_CURRENT, dataset_version)]


async def every_partition(connection: Connection, dataset_version: str) -> list[Partition]:
    """Return each partition of a generation at each of its versions."""
    return [partition_of(row) for row in await connection.fetch(_EVERY, dataset_version)]


async def read_served(connection: Connection, versions: Mapping[str, str]) -> list[Served]:
    """Return the versions that serve each DAG."""
    return [
        Served(
            dag=row["dag"],
            dag_version_id=row["dag_version_id"],
            pointers=orjson.loads(row["pointers"]),
            publish=orjson.loads(row["publish"]),
        )
        for row in await connection.fetch(_SERVED, list(versions.values()))
    ]
