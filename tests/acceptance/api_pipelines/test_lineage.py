"""Lineage and the story of rows over the API, for those who may read the datasets."""

from __future__ import annotations

from urllib.parse import quote

import pyarrow as pa
import pytest
from tests.integration.api.serving import HOME, Server
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.model.dataset import Field
from noetl.model.lineage import lineage_of
from noetl.model.task import PartitionWrite, TaskReport
from noetl.pipelines.tables.lake_files import LakeFiles
from noetl.services.people import People
from noetl.services.query.access import Readers
from noetl.testing.samples.drafts import PRODUCER

CLINIC = """
name: clinic
jobs:
  - {name: visits, operator: made_up, runtime: dispatcher}
  - {name: costs, operator: made_up, runtime: dispatcher, inputs: [visits]}
publish: [visits, costs]
"""
VISITS = (Field("id", "bigint"), Field("cost", "bigint"))
COSTS = (Field("total", "bigint"),)


async def _built(testbed: TaskTestbed, lake: LakeFiles) -> None:
    deployed = await testbed.deploy(CLINIC)
    tables = {
        "visits": (VISITS, pa.table({"id": [1, 2], "cost": [10, 20]})),
        "costs": (COSTS, pa.table({"total": [30]})),
    }
    for job, (columns, rows) in tables.items():
        (grant,) = await testbed.claim()
        target, lease = grant.targets[0], grant.lease
        entry = await lake.write(f"{target.location}all/commit={lease.task_id}-{lease.attempt}", rows)
        write = PartitionWrite(output=0, partition_key="all", schema=columns, files=(entry,))
        told = {0: lineage_of("sql", {"total": {("visits", "cost"): "aggregated"}})} if job == "costs" else {}
        report = TaskReport(status="ok", writes=(write,), lineage=told)
        assert await testbed.tasks.complete(grant, report) == "Completed"
        await testbed.drain()
    await testbed.engine.runs.finished(testbed.scope, deployed.execution_id, 10)
    await testbed.dags.activate(testbed.scope, "clinic", deployed.dag_version_id, by="tests")


async def test_lineage_is_answered_both_ways_and_as_of_then(
    server: Server, testbed: TaskTestbed, lake: LakeFiles
) -> None:
    await _built(testbed, lake)
    found = await server.call("GET", "/api/lineage/costs.total", status=200)
    assert (found["direction"], found["tree"]["column"], found["tree"]["how"]) == ("upstream", "total", "sql")
    (source,) = found["tree"]["next"]
    assert (source["dataset"], source["column"], source["kind"], source["how"]) == (
        "visits",
        "cost",
        "aggregated",
        "unknown",
    )
    again = await server.call("GET", f"/api/lineage/costs.total?as_of={quote(found['as_of'])}", status=200)
    assert again == found
    down = await server.call("GET", "/api/lineage/visits?direction=downstream&depth=1", status=200)
    assert [one["dataset"] for one in down["tree"]["next"]] == ["costs"]
    missing = await server.call("GET", "/api/lineage/costs.tota", status=404)
    assert "no column tota" in missing["detail"]
    await server.call("GET", "/api/lineage/costs?depth=0", status=400)


async def test_rows_are_explained(server: Server, testbed: TaskTestbed, lake: LakeFiles) -> None:
    await _built(testbed, lake)
    where = quote("total = 30")
    found = await server.call("GET", f"/api/datasets/costs/explain?where={where}", status=200)
    (row,) = found["rows"]
    assert row["values"] == {"total": 30}
    (maker,) = found["makers"]
    assert (maker["job"], maker["inputs"][0]["dataset"]) == ("costs", "visits")
    assert maker["causes"][-1]["event_type"] == "execution.requested"
    refused = await server.call("GET", f"/api/datasets/costs/explain?where={quote('total = 30 OR 1 = 1')}", status=400)
    assert "compares columns with values" in refused["detail"]


@pytest.fixture
async def restricted(guarded: Server, testbed: TaskTestbed, lake: LakeFiles) -> None:
    """Visits only for holders of a role that nobody of the test has."""
    await _built(testbed, lake)
    services = guarded.services
    await People(services.database, services.ledger, services.mint, PRODUCER).create_role(HOME, "nurses", "Nurses")
    readers = Readers(
        services.database,
        services.ledger,
        lambda count: [services.mint() for _ in range(count)],
        PRODUCER,
    )
    assert services.pipelines is not None
    visits = await services.pipelines.datasets.find(HOME, "visits")
    await readers.grant(HOME, visits, "nurses", "tests")


@pytest.mark.usefixtures("restricted")
async def test_who_may_not_read_a_dataset_is_told_nothing_of_it(
    guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    reader, admin = bearers["reader"], bearers["admin"]
    await guarded.call("GET", "/api/lineage/visits", headers=reader, status=403)
    await guarded.call("GET", f"/api/datasets/visits/explain?where={quote('id = 1')}", headers=reader, status=403)
    seen = await guarded.call("GET", "/api/lineage/costs.total", headers=reader, status=200)
    assert [one["dataset"] for one in seen["tree"]["next"]] == ["a dataset that you may not read"]
    assert "visits" not in str(seen)
    told = await guarded.call(
        "GET", f"/api/datasets/costs/explain?where={quote('total = 30')}", headers=reader, status=200
    )
    assert told["makers"][0]["inputs"] == []
    whole = await guarded.call("GET", "/api/lineage/costs.total", headers=admin, status=200)
    assert [one["dataset"] for one in whole["tree"]["next"]] == ["visits"]
