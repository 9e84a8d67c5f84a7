"""Datasets over the API: listed, shown, fixed as of a point, and their first rows as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import quote

import pyarrow as pa
from tests.integration.api.serving import Server
from tests.integration.pipelines.tasks.task_testbed import DAG, TaskTestbed

from noetl.model.dataset import Field
from noetl.model.task import PartitionWrite, TaskReport
from noetl.pipelines.tables.lake_files import LakeFiles

VISITS = """
name: clinic
jobs:
  - name: visits
    operator: made_up
    runtime: dispatcher
publish: [visits]
"""
COLUMNS = (Field("id", "bigint"), Field("cost", "decimal(6,2)"), Field("at", "timestamp"), Field("share", "double"))


async def _with_rows(testbed: TaskTestbed, lake: LakeFiles) -> None:
    deployed = await testbed.deploy(VISITS)
    (grant,) = await testbed.claim()
    target, lease = grant.targets[0], grant.lease
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "cost": pa.array([Decimal("1.50"), None, Decimal("3.25")], pa.decimal128(6, 2)),
            "at": pa.array([datetime(2026, 5, day, tzinfo=UTC) for day in (1, 2, 3)], pa.timestamp("us", "UTC")),
            "share": pa.array([0.5, float("nan"), 1.0], pa.float64()),
        }
    )
    entry = await lake.write(f"{target.location}all/commit={lease.task_id}-{lease.attempt}", rows)
    write = PartitionWrite(output=0, partition_key="all", schema=COLUMNS, files=(entry,))
    assert await testbed.tasks.complete(grant, TaskReport(status="ok", writes=(write,))) == "Completed"
    await testbed.drain()
    ended = await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 10)
    assert ended.status == "completed", ended
    await testbed.dags.activate(testbed.scope, "clinic", deployed.dag_version_id, by="tests")


async def test_the_first_rows_of_a_dataset_come_as_json(server: Server, testbed: TaskTestbed, lake: LakeFiles) -> None:
    await _with_rows(testbed, lake)
    head = await server.call("GET", "/api/datasets/visits/head?rows=2", status=200)
    assert [column["name"] for column in head["columns"]] == ["id", "cost", "at", "share"]
    assert head["rows"] == [
        {"id": 1, "cost": "1.50", "at": "2026-05-01T00:00:00+00:00", "share": 0.5},
        {"id": 2, "cost": None, "at": "2026-05-02T00:00:00+00:00", "share": "nan"},
    ]
    some = await server.call("GET", "/api/datasets/visits/head?where=id%3D3&where=cost%3D3.25", status=200)
    assert [row["id"] for row in some["rows"]] == [3]
    refused = await server.call("GET", "/api/datasets/visits/head?where=colour%3Dred", status=400)
    assert "no column 'colour'" in refused["detail"]
    shown = await server.call("GET", "/api/datasets/visits", status=200)
    assert (shown["rows"], shown["partitions"], shown["checksum"]) == (3, 1, head["checksum"])
    schema = await server.call("GET", "/api/datasets/visits/schema", status=200)
    assert schema["columns"][1] == {"name": "cost", "type": "decimal(6,2)", "nullable": True}


async def test_datasets_are_listed_by_name_with_what_readers_find(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    page = await server.call("GET", "/api/datasets?limit=2", status=200)
    names = [one["dataset"]["name"] for one in page["datasets"]]
    rest = await server.call("GET", f"/api/datasets?cursor={page['next_cursor']}", status=200)
    names += [one["dataset"]["name"] for one in rest["datasets"]]
    assert (names, rest["next_cursor"]) == (["shop.clean.0", "shop.orders.0", "totals"], None)
    (published,) = (await server.call("GET", "/api/datasets?published=true"))["datasets"]
    assert (published["dataset"]["name"], published["rows"]) == ("totals", 1)


async def test_partitions_are_paged_and_fixed_as_of_a_point(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    page = await server.call("GET", "/api/datasets/shop.orders.0/partitions?limit=1", status=200)
    assert [(one["partition_key"], one["version"]) for one in page["partitions"]] == [("day=1", 1)]
    await testbed.engine.runs.emit(testbed.scope, "shop", "orders", requested_by="test")
    await testbed.work(("2", "3"), salt="again")
    then = f"as_of={quote(page['as_of'])}"
    rest = await server.call(
        "GET", f"/api/datasets/shop.orders.0/partitions?{then}&cursor={quote(page['next_cursor'])}", status=200
    )
    assert [(one["partition_key"], one["version"]) for one in rest["partitions"]] == [("day=2", 1)]
    now = await server.call("GET", "/api/datasets/shop.orders.0", status=200)
    before = await server.call("GET", f"/api/datasets/shop.orders.0?{then}", status=200)
    assert (now["partitions"], before["partitions"]) == (3, 2)
    assert now["checksum"] != before["checksum"]


async def test_a_candidate_is_seen_beside_what_is_served(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    await testbed.deploy(DAG.replace("  - name: totals\n", "  - name: totals\n    config: {note: other}\n"))
    await testbed.work(salt="new")
    builds = (await server.call("GET", "/api/datasets/totals/generations", status=200))["generations"]
    assert [one["use"] for one in builds] == ["candidate", "current"]
    served = await server.call("GET", "/api/datasets/totals", status=200)
    candidate = await server.call("GET", "/api/datasets/totals?generation=candidate", status=200)
    assert [candidate["dataset_version"], served["dataset_version"]] == [one["dataset_version"] for one in builds]


async def test_an_unknown_dataset_is_told_with_what_was_meant(server: Server, testbed: TaskTestbed) -> None:
    await testbed.built()
    refused = await server.call("GET", "/api/datasets/total", status=404)
    assert refused["hint"] == "did you mean totals?"
    await server.call("GET", "/api/datasets/totals?as_of=sometime", status=400)
