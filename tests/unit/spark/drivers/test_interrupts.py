"""An interrupt stops what it names, whatever it is doing, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from tests.unit.spark.drivers.conftest import WorkMaker
from tests.unit.spark.drivers.meeting import bell

from noetl.testing.servers.spark import SharedDriver

pytestmark = pytest.mark.timeout(300)

Held = Callable[[], AbstractAsyncContextManager[SharedDriver]]

SLOW_JOB = """
def slow(batches):
    import time
    {ring}
    time.sleep(600)
    yield from batches
session.range(0, 1, 1, 1).mapInArrow(slow, "id long").collect()
"""
SLOW_PYTHON = """
{ring}
while True:
    pass
"""
SWALLOWS = """
def slow(batches):
    import time
    {ring}
    time.sleep(600)
    yield from batches
while True:
    try:
        session.range(0, 1, 1, 1).mapInArrow(slow, "id long").collect()
    except Exception:
        pass
"""
# Spark takes a moment to strike a cancelled job off its list; one that went on would stay there.
QUIET = """
while session.sparkContext.statusTracker().getActiveJobsIds():
    pass
metrics['active'] = 0
"""


async def interrupted_when_under_way(driver: Held, work: WorkMaker, code: str) -> str:
    async with bell() as started, driver() as held:
        one = work(code.format(ring=started.ring))
        run = held.run([one])
        pending = asyncio.ensure_future(anext(run))
        await started.rung.wait()
        await held.interrupt(one.tag)
        async with asyncio.timeout(60):
            result = await pending
        async with asyncio.timeout(60):
            (after,) = [result async for result in held.run([work(QUIET)])]
    assert after.metrics == {"active": 0}
    return result.status


async def test_a_running_spark_job_is_stopped(driver: Held, work: WorkMaker) -> None:
    """INV-59."""
    assert await interrupted_when_under_way(driver, work, SLOW_JOB) == "interrupted"


async def test_python_that_never_calls_spark_is_stopped(driver: Held, work: WorkMaker) -> None:
    assert await interrupted_when_under_way(driver, work, SLOW_PYTHON) == "interrupted"


async def test_a_job_that_tries_again_whatever_happens_is_stopped_too(driver: Held, work: WorkMaker) -> None:
    assert await interrupted_when_under_way(driver, work, SWALLOWS) == "interrupted"


async def test_a_work_that_has_ended_sets_no_deadline_for_its_driver(driver: Held, work: WorkMaker) -> None:
    async with driver() as held:
        one = work("pass")
        (result,) = [result async for result in held.run([one])]
        await held.interrupt(one.tag)
        # The driver is shared: a work of another test may still be ending in it.
        assert (result.status, one.tag in held._driver._process._deadlines) == ("ok", False)


async def test_a_work_interrupted_before_its_first_action_starts_none(driver: Held, work: WorkMaker) -> None:
    """INV-59."""
    async with bell() as started, driver() as held:
        one = work(SLOW_JOB.format(ring=started.ring))
        run = held.run([one])
        pending = asyncio.ensure_future(anext(run))
        await asyncio.sleep(0)  # lets the run be sent, and nothing more
        await held.interrupt(one.tag)
        async with asyncio.timeout(60):
            assert (await pending).status == "interrupted"


async def test_the_others_of_a_batch_survive_the_interrupt_of_one(driver: Held, work: WorkMaker) -> None:
    async with bell() as started, driver() as held:
        first = work(SLOW_JOB.format(ring=started.ring))
        second = work("metrics['n'] = session.range(5).count()")
        found = {}
        run = held.run([first, second])
        pending = asyncio.ensure_future(anext(run))
        await started.rung.wait()
        await held.interrupt(first.tag)
        async with asyncio.timeout(60):
            result = await pending
            found[result.task_id] = result
            async for result in run:
                found[result.task_id] = result
    assert found[first.grant.lease.task_id].status == "interrupted"
    assert found[second.grant.lease.task_id].status == "ok"
    assert found[second.grant.lease.task_id].metrics == {"n": 5}


async def test_works_that_nobody_waits_for_any_more_are_interrupted(driver: Held, work: WorkMaker) -> None:
    async with bell() as started, driver() as held:
        run = held.run([work(SLOW_JOB.format(ring=started.ring))])
        pending = asyncio.ensure_future(anext(run))
        await started.rung.wait()
        pending.cancel()
        await asyncio.wait([pending])
        await run.aclose()
        idle = """
            tracker = session.sparkContext.statusTracker()
            import time
            while tracker.getActiveJobsIds():
                time.sleep(0.05)
        """
        async with asyncio.timeout(60):
            (after,) = [result async for result in held.run([work(idle)])]
    assert after.status == "ok"
