"""A testbed for every test: its own database, an engine that nothing drives yet, and no process left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.faults.pipelines.pipeline_testbed import PipelineTestbed

from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import connected, open_task_engine
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers


async def _testbed(playbooks: Playbooks, lake: str) -> AsyncIterator[PipelineTestbed]:
    async with open_task_engine(playbooks.runtime) as engine:
        tested = connected(engine, playbooks.runtime, playbooks.scope, Lake(lake), playbooks.home / "dag")
        testbed = PipelineTestbed(tested, engine, playbooks.owner_url, lake)
        yield testbed
        testbed.close()


@pytest.fixture
async def testbed(playbooks: Playbooks) -> AsyncIterator[PipelineTestbed]:
    """The test's testbed, without Spark."""
    async for testbed in _testbed(playbooks, str(playbooks.home / "lake")):
        yield testbed


@pytest.fixture
async def spark_testbed(playbooks: Playbooks, spark_drivers: SharedDrivers) -> AsyncIterator[PipelineTestbed]:
    """The test's testbed, in the lake of the test process's Spark."""
    async for testbed in _testbed(playbooks, spark_drivers.options.lake_root):
        yield testbed
