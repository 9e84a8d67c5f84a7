"""The Spark driver killed at every stage of a batch: the lake is the ledger all the same, nothing missing, nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.contracts.event_lake.lake_testbed import LakeTestbed, fresh_scope

from noetl.errors import Unavailable
from noetl.model.task import TaskStatus
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.spark.drivers.pool import Drivers
from noetl.spark.session.options import SparkOptions
from noetl.testing.engines.playbooks import Playbooks

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(600)]

POINTS = ("lake.before_files", "lake.after_files", "lake.before_commit", "lake.after_commit")


@pytest.fixture
async def drivers(spark_options: SparkOptions, playbooks: Playbooks) -> AsyncIterator[Drivers]:
    """Drivers of the test alone, since they are killed."""
    own = msgspec.structs.replace(spark_options, lake_root=str(playbooks.home / "lake"))
    made = Drivers(own, live=1)
    yield made
    await made.close()


async def test_a_driver_killed_there_leaves_nothing_out_and_nothing_twice(
    playbooks: Playbooks, task_engine: TaskEngine, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-87."""
    testbed = LakeTestbed(playbooks, task_engine, fresh_scope("acme"), str(playbooks.home / "lake"), drivers)
    await testbed.write(4)
    async with testbed.streamed.open():
        for point in POINTS:
            monkeypatch.setenv("NOETL_FAULT", f"{point}=kill")
            with pytest.raises(Unavailable, match="driver ended"):
                await testbed.lake.sync(tries=1)
            await testbed.write(1)
        monkeypatch.setenv("NOETL_FAULT", "lake.before_compacted=raise")
        last = await testbed.lake.sync(tries=1)
        assert last["batches"] == 1, "the batch that Spark did not know to be done is not committed again"
        rows = await testbed.rows()
        assert len(rows) == len({(row["shard"], row["position"]) for row in rows})
        compared = await testbed.lake.verify()
        assert compared["equal"], compared["difference"]
        assert compared["lake"]["rows"] == len(rows)
        statuses: list[TaskStatus] = [task.status for task in await testbed.tested.tasks("events")]
        assert statuses == ["Completed", "Failed", "Failed", "Failed", "Completed", "Completed"]
        with pytest.raises(Exception, match="before_compacted"):
            await testbed.lake.compact()
        assert len(await testbed.files()) == 2, "what was not committed is not seen"
