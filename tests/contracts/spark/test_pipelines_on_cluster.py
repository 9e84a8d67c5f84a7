"""Pipelines on a real standalone cluster: whole DAGs, and executors killed in the middle of a job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.contracts.spark.small_dag import assert_built_and_fed, on_server

from noetl.pipelines.tasks.engine import TaskEngine
from noetl.spark.session.options import SparkOptions
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]

MODULE = """
import os
import signal
from pathlib import Path


def numbers(spark, context):
    told, losses, attempt = Path(context.config["told"]), context.config["losses"], context.attempt

    def each(batches):
        yield from batches
        before = len(list(told.iterdir()))
        if attempt == 1 and before < losses:
            # From this process up to the executor's own, which is the first that is no Python.
            pid = os.getppid()
            while "java" not in os.readlink(f"/proc/{pid}/exe"):
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            (told / str(before)).write_text(str(pid))
            os.kill(pid, signal.SIGKILL)
            signal.pause()

    rows = spark.range(0, 6, 1, 1).selectExpr("id", "id % 2 AS part")
    return rows.mapInArrow(each, "id bigint, part bigint")
"""
DAG = """
name: {name}
defaults: {{max_attempts: 3}}
jobs:
  - name: numbers
    function: losing:numbers
    partition_by: [part]
    config: {{told: "{told}", losses: {losses}}}
publish: {{{name}: numbers}}
"""
ROWS = [{"id": number, "part": number % 2} for number in range(6)]


@pytest.fixture(scope="module")
def cluster(spark_options: SparkOptions, spark_master: str) -> Iterator[SharedDrivers]:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    options = msgspec.structs.replace(spark_options, master=spark_master, conf=spark_options.conf | settings)
    # One application has all cores of the cluster, so that no second driver may be kept beside the first.
    shared = SharedDrivers(options, live=1)
    yield shared
    shared.close()


@pytest.fixture
async def pipelines(
    playbooks: Playbooks, task_engine: TaskEngine, cluster: SharedDrivers
) -> AsyncIterator[TestedPipelines]:
    async with on_server(playbooks, task_engine, cluster) as tested:
        yield tested


async def test_a_dag_is_built_and_fed_on_a_cluster(pipelines: TestedPipelines) -> None:
    await assert_built_and_fed(pipelines)


@pytest.mark.parametrize(("losses", "outcomes"), [(1, ["completed"]), (99, ["attempt_failed", "completed"])])
async def test_executors_lost_in_the_middle_of_a_job_repeat_no_row(
    pipelines: TestedPipelines, tmp_path: Path, losses: int, outcomes: list[str]
) -> None:
    """INV-59. One loss Spark makes good by itself; where it gives the job up, the next attempt at the task does."""
    name, told = f"lost_{losses}", tmp_path / "told"
    told.mkdir()
    await pipelines.deploy(DAG.format(name=name, told=told, losses=losses), losing__py=MODULE)
    killed = {int(one.read_text()) for one in told.iterdir()}
    assert len(killed) >= min(losses, 2)
    assert not killed & set(psutil.pids())
    assert await pipelines.rows(name) == ROWS
    (task,) = await pipelines.tasks("numbers")
    history = await pipelines.engine.by_hand.history(pipelines.scope, task.task_id)
    assert [attempt.outcome for attempt in history] == outcomes, [attempt.error for attempt in history]
    versions = await pipelines.fetch("SELECT DISTINCT version FROM noetl.partition_version")
    assert [row[0] for row in versions] == [1], "nothing of what was lost was ever seen"
