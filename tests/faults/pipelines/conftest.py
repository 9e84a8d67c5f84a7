"""A ground for every test: its own database, an engine that nothing drives yet, and no process left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.faults.pipelines.pipeline_testbed import Ground

from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import connected, open_task_engine
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.spark import SharedDrivers


async def _ground(playbooks: Playbooks, lake: str) -> AsyncIterator[Ground]:
    async with open_task_engine(playbooks.runtime) as engine:
        tested = connected(engine, playbooks.runtime, playbooks.scope, Lake(lake), playbooks.home / "dag")
        ground = Ground(tested, engine, playbooks.owner_url, lake)
        yield ground
        ground.close()


@pytest.fixture
async def ground(playbooks: Playbooks) -> AsyncIterator[Ground]:
    """The test's ground, without Spark."""
    async for ground in _ground(playbooks, str(playbooks.home / "lake")):
        yield ground


@pytest.fixture
async def spark_ground(playbooks: Playbooks, spark_drivers: SharedDrivers) -> AsyncIterator[Ground]:
    """The test's ground, in the lake of the test process's Spark."""
    async for ground in _ground(playbooks, spark_drivers.options.lake_root):
        yield ground
