"""Spark lost under a task: its driver, its JVM with it, or a Python worker of an executor. Another attempt does the work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest
from tests.faults.pipelines.spark_jobs import MODULE

from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(300)]

DAG = """
name: {name}
defaults: {{max_attempts: 3}}
jobs:
  - name: numbers
    function: spark_jobs:{function}
    partition_by: [part]
    config: {{told: "{told}"}}
publish: {{{name}: numbers}}
"""
ROWS = [{"id": number, "part": number % 2} for number in range(6)]


@pytest.mark.parametrize("lost", ["driver", "jvm"])
async def test_a_driver_killed_in_the_middle_of_a_job_is_replaced_and_leaves_nothing_running(
    spark_pipelines: TestedPipelines, tmp_path: Path, lost: str
) -> None:
    """INV-59: the driver itself, or the JVM under it, without which it can do nothing."""
    dag = DAG.format(name="driver_lost", function="driver_lost", told=tmp_path)
    deployed = await spark_pipelines.begin(dag, spark_jobs__py=MODULE)
    await until(lambda: asyncio.to_thread(_is_written, tmp_path / "worker"), "the first rows of the job")
    driver = psutil.Process(int((tmp_path / "driver").read_text()))
    family = [driver, *driver.children(recursive=True)]
    (jvm,) = (one for one in family if "java" in one.name())
    (driver if lost == "driver" else jvm).kill()
    await spark_pipelines.built(deployed)
    await spark_pipelines.activate(deployed)
    assert await spark_pipelines.rows("driver_lost") == ROWS

    async def gone() -> bool:
        return not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

    await until(gone, "an end of the JVM and its Python workers")
    await _assert_tried(spark_pipelines, "driver_lost")


async def test_a_python_worker_killed_in_the_middle_of_a_job_costs_an_attempt(
    spark_pipelines: TestedPipelines, tmp_path: Path
) -> None:
    dag = DAG.format(name="worker_lost", function="worker_lost", told=tmp_path)
    await spark_pipelines.deploy(dag, spark_jobs__py=MODULE)
    assert await spark_pipelines.rows("worker_lost") == ROWS
    assert _is_written(tmp_path / "worker")
    await _assert_tried(spark_pipelines, "Py4JJavaError")


async def _assert_tried(pipelines: TestedPipelines, kind: str) -> None:
    (task,) = await pipelines.tasks("numbers")
    lost, done = await pipelines.engine.by_hand.history(pipelines.scope, task.task_id)
    assert (lost.outcome, lost.error_kind, done.outcome) == ("attempt_failed", kind, "completed")
    versions = await pipelines.fetch("SELECT DISTINCT version FROM noetl.partition_version")
    assert [row[0] for row in versions] == [1], "nothing of the first attempt was ever seen"


def _is_written(path: Path) -> bool:
    return path.exists() and bool(path.read_text())
