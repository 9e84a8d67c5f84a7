"""One Spark session per test process, and a small lake on which tests build datasets and run attempts."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.unit.spark.plain_session import plain_session

from noetl.model.dataset import ALL, Field, FileEntry, Manifest
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.task import InputPart, PartitionWrite, TaskGrant, TaskInput, TaskLease, TaskTarget
from noetl.spark.drivers.protocol import Work, WorkResult
from noetl.spark.lake.parquet_files import read_table, write_table
from noetl.spark.lake.storage import Lake
from noetl.spark.operators import run_batch

_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
}


def fields(text: str) -> tuple[Field, ...]:
    """Read `name type, name type`."""
    return tuple(Field(*one.strip().split(" ", 1)) for one in text.split(";")) if text else ()


class Rig:
    """Datasets of a test on one lake, and attempts over them."""

    def __init__(self, session: SparkSession, lake: Lake) -> None:
        self.session = session
        self.lake = lake
        self.manifests: dict[str, Manifest] = {}

    def part(
        self,
        schema: str,
        rows: Sequence[Sequence[Any]],
        key: str = ALL,
        *,
        version: int = 1,
        files: int = 1,
        after: int = 0,
    ) -> InputPart:
        """Write rows as a partition of some dataset; row n goes to file n modulo `files`."""
        columns = fields(schema)
        arrow = pa.schema([(one.name, _ARROW[one.type]) for one in columns])
        entries = []
        for number in range(files):
            mine = [dict(zip(arrow.names, row, strict=True)) for row in rows[number::files]]
            if mine:
                table = pa.Table.from_pylist(mine, schema=arrow)
                entry = write_table(self.lake, f"given/{uuid.uuid4()}/part-{number}.parquet", table)
                entries.append(entry)
        return self.keep(key, columns, entries, version=version, after=after)

    def keep(
        self, key: str, columns: Sequence[Field], entries: Sequence[FileEntry], *, version: int = 1, after: int = 0
    ) -> InputPart:
        """Make a manifest and what refers to it."""
        manifest = Manifest(
            dataset_version="g",
            partition_key=key,
            version=version,
            schema=tuple(columns),
            files=tuple(_added(entry, version) for entry in entries),
        )
        digest = uuid.uuid4().hex * 2
        self.manifests[digest] = manifest
        return InputPart(partition_key=key, version=version, manifest=_reference(digest), after=after)

    def taking(
        self, alias: str, *parts: InputPart, where: Mapping[str, Any] | None = None, schema: str = ""
    ) -> TaskInput:
        """Make an input."""
        return TaskInput(
            alias=alias,
            dataset_uuid=f"d-{alias}",
            dataset_version=f"v-{alias}",
            parts=parts,
            where=dict(where or {}),
            schema=fields(schema),
        )

    def target(self, **more: Any) -> TaskTarget:
        """Make an output."""
        given = {"output": 0, "dataset_uuid": "d", "dataset_version": "v", "dataset_name": "made", "location": "made/"}
        return TaskTarget(**(given | more))

    def work(
        self,
        operator: str,
        config: Mapping[str, Any],
        inputs: Sequence[TaskInput] = (),
        targets: Sequence[TaskTarget] | None = None,
        *,
        key: str = ALL,
        checks: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> Work:
        """Make an attempt at a task."""
        grant = TaskGrant(
            lease=TaskLease(task_id=str(uuid.uuid4()), attempt=1, token="t", seconds=60),
            execution_id=1,
            job_id="j",
            dag="shop",
            job="clean",
            dag_version_id="dv",
            operator=operator,
            runtime="spark",
            partition_key=key,
            strategy="PerPartition",
            config=dict(config),
            bundle=_reference("b" * 64),
            code_digest="",
            inputs=tuple(inputs),
            targets=(self.target(),) if targets is None else tuple(targets),
            checks=tuple(map(dict, checks)),
            **more,
        )
        return Work(grant=grant, manifests=self.manifests, secrets={"token": "s3cret"})

    def run(self, *works: Work) -> list[WorkResult]:
        """Run attempts as the driver does; results in the order of the works."""
        results: dict[str, WorkResult] = {}

        def deliver(result: WorkResult) -> None:
            assert result.task_id not in results
            results[result.task_id] = result

        run_batch(self.session, works, self.lake, deliver)
        return [results[work.grant.lease.task_id] for work in works]

    def ok(self, *works: Work) -> list[WorkResult]:
        """Run attempts that must go well."""
        results = self.run(*works)
        assert [result.error for result in results] == [None] * len(works)
        return results

    def sql(self, query: str, *inputs: TaskInput, **more: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query makes."""
        (result,) = self.ok(self.work("spark_sql", {"sql": query}, inputs, **more))
        return self.rows(*result.writes)

    def rows(self, *writes: PartitionWrite) -> list[tuple[Any, ...]]:
        """Return the rows of what was written, sorted."""
        found = [
            tuple(row.values())
            for write in writes
            for entry in write.files
            for row in read_table(self.lake, entry, [one.name for one in write.schema]).to_pylist()
        ]
        return sorted(found, key=repr)


def _added(entry: FileEntry, version: int) -> FileEntry:
    return entry if entry.added else msgspec.structs.replace(entry, added=version)


def _reference(digest: str) -> PayloadRef:
    return PayloadRef(uri=payload_uri("t", "o", digest), sha256=digest, media_type="x", bytes=1, stored_sha256=digest)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    with plain_session(tmp_path_factory.mktemp("spark"), settings) as session:
        yield session


@pytest.fixture(params=["native"])
def rig(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Rig:
    """A lake in a directory whose name is no plain word; `arrow` reads and writes it in the executors."""
    directory = tmp_path / "my lake é%20"
    directory.mkdir()
    return Rig(spark, Lake(str(directory), native=request.param == "native"))


@pytest.fixture(autouse=True)
def _quiet_sockets() -> Iterator[None]:
    # Spark's own Python leaves sockets to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
