"""Datasets on a real S3 server, which Spark itself cannot reach: rows pass through Arrow in the executors."""

from __future__ import annotations

import hashlib

import obstore
import pytest

from noetl.spark.lake.parquet_files import measured
from noetl.spark.lake.storage import Lake
from noetl.testing.servers.s3 import running_s3

SCHEMA = "id bigint;day string"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3"), "lake") as server:
        yield Lake(
            "s3://lake/some/where",
            {
                "endpoint": server.endpoint,
                "region": "us-east-1",
                "access_key_id": server.access_key,
                "secret_access_key": server.secret_key,
                "allow_http": "true",
                "virtual_hosted_style_request": "false",
            },
            native=False,
        )


@pytest.fixture
def remote(rig, bucket):
    rig.lake = bucket
    return rig


@pytest.mark.service
def test_a_batch_reads_and_writes_an_object_store(remote):
    target = remote.target(partition_by=("day",), update_strategy="append", unique_key=("id",))
    works = [
        remote.work(
            "spark_sql",
            {"sql": "SELECT id % 3 AS id, day FROM given"},
            [remote.taking("given", remote.part(SCHEMA, [(n, day) for n in range(5)], f"day={day}", files=2))],
            [target],
            key=f"day={day}",
            checks=[{"kind": "unique", "columns": ["id"]}],
        )
        for day in ("a", "b")
    ]
    for result, day in zip(remote.ok(*works), ("a", "b"), strict=True):
        assert result.metrics["batch"] == 2
        assert remote.rows(*result.writes) == [(0, day), (1, day), (2, day)]
        assert [check.passed for check in result.checks] == [True]
        for entry in result.writes[0].files:
            assert hashlib.sha256(obstore.get(remote.lake.store(), entry.path).bytes()).hexdigest() == entry.sha256


@pytest.mark.service
def test_files_are_measured_where_they_lie(remote):
    part = remote.part(SCHEMA, [(1, "a"), (7, "b")])
    (entry,) = remote.manifests[part.manifest.sha256].files
    (again,) = measured(remote.lake, [entry.path])
    assert (again.sha256, again.bytes, again.rows, again.stats) == (entry.sha256, entry.bytes, entry.rows, entry.stats)


@pytest.mark.service
def test_rows_are_split_into_partitions_on_an_object_store(remote):
    part = remote.part(SCHEMA, [(n, f"d{n % 2}") for n in range(6)], files=3)
    target = remote.target(partition_by=("day",))
    (result,) = remote.ok(
        remote.work("spark_sql", {"sql": "SELECT * FROM given"}, [remote.taking("given", part)], [target])
    )
    assert {write.partition_key: len(remote.rows(write)) for write in result.writes} == {"day=d0": 3, "day=d1": 3}
