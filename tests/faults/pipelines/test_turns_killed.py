"""Keepers and workers of sources that are killed anywhere: one live turn afterwards, no row lost and none twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.faults.pipelines.pipeline_testbed import PipelineTestbed
from tests.faults.pipelines.process import tick

from noetl.pipelines.plan.life_cycles import turn_number
from noetl.pipelines.sources.supervisor import SourceKeeper
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

DAG = """
name: feed
defaults: {heartbeat_timeout_seconds: 2, max_attempts: 9}
publish: [ticks, seen]
jobs:
  - name: ticks
    operator: made
    runtime: dispatcher
    source: {kind: always_on, every: 100ms}
    unique_key: [tick]
  - name: seen
    operator: made
    runtime: dispatcher
    inputs: [ticks]
    config: {query: "SELECT count(*) AS ticks, max(tick) AS latest FROM ticks"}
"""


@asynccontextmanager
async def kept(pipelines: TestedPipelines) -> AsyncIterator[None]:
    """Keep sources running for the time of the block."""
    keeper = SourceKeeper(pipelines.runtime.database, pipelines.engine, every_seconds=0.05)
    keeper.start()
    try:
        yield
    finally:
        await keeper.stop()


async def turns(pipelines: TestedPipelines) -> dict[int, str]:
    """Return the status of each turn."""
    found = {turn_number(task.dedupe_key): task.status for task in await pipelines.tasks("ticks")}
    return {number: status for number, status in found.items() if number is not None}


def completed(pipelines: TestedPipelines, count: int) -> Callable[[], Awaitable[bool]]:
    """Return what tells whether so many turns have ended well."""

    async def are_there() -> bool:
        return list((await turns(pipelines)).values()).count("Completed") >= count

    return are_there


async def assert_one_after_another(pipelines: TestedPipelines) -> None:
    """No number is left out, at most one turn is open, and each that ended well gave one row."""
    found = await turns(pipelines)
    assert list(found) == list(range(1, len(found) + 1))
    assert sum(task.open for task in await pipelines.tasks("ticks")) <= 1
    well = list(found.values()).count("Completed") + 1
    rows = sorted(row["tick"] for row in await pipelines.rows("ticks"))
    assert rows == list(range(1, well + 1)), "the build gave the first"


@pytest.mark.parametrize(
    "point", ["run.before_request", "run.after_request", "task.before_commit", "task.after_commit"]
)
async def test_a_process_killed_in_the_middle_of_a_turn_is_replaced(testbed: PipelineTestbed, point: str) -> None:
    """INV-67."""
    pipelines = testbed.pipelines
    pipelines.made.given["ticks"] = tick
    async with testbed.recovering():
        await pipelines.deploy(DAG)
        await testbed.process(f"{point}=kill", keeps=True).killed()
        before = list((await turns(pipelines)).values()).count("Completed")
        async with kept(pipelines):
            await until(completed(pipelines, before + 2), "turns of those that are left")
        await until(_ended(pipelines), "an end of the last turn")
        await assert_one_after_another(pipelines)


async def test_keepers_and_workers_in_several_processes_share_the_turns(testbed: PipelineTestbed) -> None:
    """INV-67."""
    pipelines = testbed.pipelines
    pipelines.made.given["ticks"] = tick
    async with testbed.recovering():
        await pipelines.deploy(DAG)
        others = [testbed.process("", keeps=True) for _ in range(2)]
        await asyncio.gather(*(one.said("ready") for one in others))
        async with kept(pipelines):
            await until(completed(pipelines, 3), "three turns")
            others[0].send(signal.SIGKILL)
            await others[0].ended()
            before = len(await turns(pipelines))
            await until(completed(pipelines, before + 2), "turns of those that are left")
            others[1].send(signal.SIGTERM)
            assert await others[1].ended() == 0
        await until(_ended(pipelines), "an end of the last turn")
        await assert_one_after_another(pipelines)


def _ended(pipelines: TestedPipelines) -> Callable[[], Awaitable[bool]]:
    async def nothing_open() -> bool:
        return not any(task.open for task in await pipelines.tasks("ticks"))

    return nothing_open
