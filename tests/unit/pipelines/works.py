"""Attempts at tasks as an operator is given them, with a lake of the test's own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from noetl.model.dataset import Field, Manifest
from noetl.model.payload_ref import PayloadRef
from noetl.model.task import InputPart, PartitionWrite, TaskGrant, TaskInput, TaskLease, TaskTarget, merged
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.pipelines.tables.partitions import TableWriter
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.storage import Lake

GENERATION = "22222222-2222-5222-8222-222222222222"


def lake_of(directory: Path) -> LakeFiles:
    """Return the files of a lake in a directory."""
    return LakeFiles(Lake(str(directory)))


def reference(text: str) -> PayloadRef:
    """Return a reference that nobody fetches."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return PayloadRef(
        uri=f"noetl://tenant/default/org/default/payloads/sha256/{digest}",
        sha256=digest,
        media_type="application/json",
        bytes=len(text),
        stored_sha256=digest,
    )


def target(**given: Any) -> TaskTarget:
    """Return an output to write to."""
    known: dict[str, Any] = {
        "output": 0,
        "dataset_uuid": "11111111-1111-5111-8111-111111111111",
        "dataset_version": GENERATION,
        "dataset_name": "orders",
        "location": f"default/default/datasets/orders/gen={GENERATION}/",
    }
    return TaskTarget(**{**known, **given})


def work(*targets: TaskTarget, manifests: dict[str, Manifest] | None = None, **given: Any) -> Work:
    """Return one attempt."""
    known: dict[str, Any] = {
        "lease": TaskLease(task_id="33333333-3333-5333-8333-333333333333", attempt=1, token="t", seconds=60.0),
        "execution_id": 1,
        "job_id": "j",
        "dag": "shop",
        "job": "orders",
        "dag_version_id": "v",
        "operator": "made_up",
        "runtime": "dispatcher",
        "partition_key": "all",
        "strategy": None,
        "config": {},
        "bundle": reference("bundle"),
        "code_digest": "",
    }
    return Work(grant=TaskGrant(**{**known, **given}, targets=targets), manifests=manifests or {})


def landed(write: PartitionWrite, base: Manifest | None = None, *, append: bool = True) -> Manifest:
    """Return the partition after a write was committed on top of another."""
    version = 1 if base is None else base.version + 1
    return merged(base, write, version, GENERATION, append=append)


async def standing(files: LakeFiles, on: TaskTarget, rows: pa.Table) -> tuple[TaskTarget, dict[str, Manifest]]:
    """Write rows as the first commit of an output, and return the output as the next task is given it."""
    written = await TableWriter(files).write(work(on), {0: rows})
    manifests = {reference(write.partition_key).sha256: landed(write) for write in written.writes}
    parts = tuple(
        InputPart(partition_key=write.partition_key, version=1, manifest=reference(write.partition_key))
        for write in written.writes
    )
    return msgspec.structs.replace(on, parts=parts, schema=written.writes[0].schema), manifests


def input_of(on: TaskTarget, **given: Any) -> TaskInput:
    """Return what a target holds as the input of another task."""
    return TaskInput(
        alias="orders", dataset_uuid=on.dataset_uuid, dataset_version=on.dataset_version, parts=on.parts, **given
    )


async def rows_of(files: LakeFiles, write: PartitionWrite) -> list[dict[str, Any]]:
    """Return the rows that were written."""
    from noetl.pipelines.tables.column_types import schema_of

    rows: list[dict[str, Any]] = (await files.read(write.files, schema_of(write.schema))).to_pylist()
    return rows


def column(name: str, kind: str, *, nullable: bool = True) -> Field:
    """Return a declared column."""
    return Field(name, kind, nullable)
