"""A process with a Spark driver killed between files, manifest, pointer and outbox: another builds the pipeline whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.faults.pipelines.pipeline_testbed import PipelineTestbed

from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.fault, pytest.mark.timeout(300)]

DAG = """
name: {name}
defaults: {{heartbeat_timeout_seconds: 3, max_attempts: 9}}
jobs:
  - name: orders
    sql: SELECT id, CAST(id % 3 AS STRING) AS day FROM range(30)
    partition_by: [day]
  - name: counts
    inputs: [orders]
    partition_by: [day]
    sql: SELECT day, count(*) AS n FROM orders GROUP BY day
  - name: log
    inputs: [counts]
    execution_strategy: PerUpdate
    unique_key: [day]
    sql: SELECT day, n FROM counts
publish: {{{name}_orders: orders, {name}_log: log}}
"""


@pytest.mark.parametrize(
    "point", ["task.after_started", "task.before_commit", "task.after_manifest", "task.after_commit"]
)
async def test_a_process_killed_there_leaves_no_job_and_nothing_half_done(
    spark_testbed: PipelineTestbed, spark_drivers: SharedDrivers, tmp_path: Path, point: str
) -> None:
    """INV-52."""
    name = point.replace(".", "_")
    pipelines = spark_testbed.pipelines
    deployed = await pipelines.begin(DAG.format(name=name))
    own = msgspec.structs.replace(spark_drivers.options, home=str(tmp_path / "spark"))
    await spark_testbed.process(f"{point}=kill", spark=own).killed()
    async with spark_testbed.recovering(spark_drivers):
        await pipelines.built(deployed)
        await pipelines.activate(deployed)
    assert await pipelines.rows(f"{name}_log") == [{"day": str(day), "n": 10} for day in range(3)]
    assert sorted(row["id"] for row in await pipelines.rows(f"{name}_orders")) == list(range(30))
    versions = await pipelines.fetch("SELECT max(version) FROM noetl.partition_version GROUP BY dataset_version")
    assert min(row[0] for row in versions) == 1, "what was committed is not committed again"
    orders = (await pipelines.tasks("orders"))[0]
    assert orders.attempt == (1 if point == "task.after_commit" else 2)
    first = (await pipelines.engine.by_hand.history(pipelines.scope, orders.task_id))[0]
    assert first.application_id is not None, "where it ran was recorded before it began"
    await spark_testbed.assert_whole()
