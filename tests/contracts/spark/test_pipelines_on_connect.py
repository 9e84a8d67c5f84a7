"""Pipelines on a real Spark Connect server: the same DAG as on a cluster, and what lineage says where no plan is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from tests.contracts.spark.small_dag import assert_built_and_fed, on_server

from noetl.pipelines.tasks.engine import TaskEngine
from noetl.spark.session.options import SparkOptions
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers
from noetl.testing.servers.spark_cluster import running_connect

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def connect(spark_options: SparkOptions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDrivers]:
    with running_connect(tmp_path_factory.mktemp("connect"), spark_options) as master:
        shared = SharedDrivers(msgspec.structs.replace(spark_options, master=master))
        yield shared
        shared.close()


@pytest.fixture
async def pipelines(
    playbooks: Playbooks, task_engine: TaskEngine, connect: SharedDrivers
) -> AsyncIterator[TestedPipelines]:
    async with on_server(playbooks, task_engine, connect) as tested:
        yield tested


async def test_a_dag_is_built_and_fed_on_a_connect_server(pipelines: TestedPipelines) -> None:
    await assert_built_and_fed(pipelines)
    told = await pipelines.fetch("SELECT job, how, reason FROM noetl.dataset_lineage")
    assert {row["job"]: row["how"] for row in told} == {
        "orders": "unknown", "priced": "unknown", "days": "sql", "totals": "sql",
    }  # fmt: skip
    assert {row["reason"] for row in told if row["how"] == "unknown"} == {
        "a Spark Connect server does not show its plans"
    }
