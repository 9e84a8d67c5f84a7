"""Sources that are kept running: turn after turn, each where the one before stopped, until they are drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from noetl.errors import Conflict, InputError, NotFound
from noetl.pipelines.plan.life_cycles import turn_number
from noetl.pipelines.sources.supervisor import SourceKeeper
from noetl.pipelines.sources.turns import Turns
from noetl.pipelines.worker.in_process import OperatorFailed, Produced
from noetl.spark.drivers.protocol import Work
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = pytest.mark.service

DAG = """
name: feed
defaults: {{max_attempts: 1}}
publish: [ticks, seen]
jobs:
  - name: ticks
    operator: made
    runtime: dispatcher
    source: {{kind: always_on, every: 100ms}}
    unique_key: [tick]
    config: {{version: {version}}}
  - name: seen
    operator: made
    runtime: dispatcher
    inputs: [ticks]
    config: {{query: "SELECT count(*) AS ticks, max(tick) AS latest FROM ticks"}}
"""


def dag(version: int = 1) -> str:
    """Return the DAG, of which other versions have other sources."""
    return DAG.format(version=version)


def counting(work: Work) -> Produced:
    """Give one row per turn, numbered by what the turn before remembered."""
    tick = int(work.grant.operator_state.get("next", 1))
    return Produced(tables={0: pa.table({"tick": [tick]})}, state={"next": tick + 1})


@asynccontextmanager
async def kept(pipelines: TestedPipelines, keepers: int = 1) -> AsyncIterator[None]:
    """Keep sources running for the time of the block."""
    running = [SourceKeeper(pipelines.runtime.database, pipelines.engine, every_seconds=0.05) for _ in range(keepers)]
    for keeper in running:
        keeper.start()
    try:
        yield
    finally:
        for keeper in running:
            await keeper.stop()


async def turns(pipelines: TestedPipelines) -> dict[int, str]:
    """Return the status of each turn."""
    found = {turn_number(task.dedupe_key): task.status for task in await pipelines.tasks("ticks")}
    return {number: status for number, status in found.items() if number is not None}


def reached(pipelines: TestedPipelines, number: int, status: str = "Completed") -> Callable[[], object]:
    """Return what tells whether a turn has come so far."""

    async def is_there() -> bool:
        return (await turns(pipelines)).get(number) == status

    return is_there


async def test_a_source_goes_on_turn_after_turn_with_what_it_remembers(pipelines: TestedPipelines) -> None:
    """INV-67."""
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    async with kept(pipelines, keepers=3):
        await until(reached(pipelines, 3), "a third turn")
    await until(_ended(pipelines), "an end of the last turn")
    done = await turns(pipelines)
    assert list(done) == list(range(1, len(done) + 1))
    last = max(number for number, status in done.items() if status == "Completed") + 1
    await until(_latest(pipelines, last), "what follows from the last turn")
    rows = sorted(row["tick"] for row in await pipelines.rows("ticks"))
    assert rows == list(range(1, last + 1)), "the build gave the first"


def _latest(pipelines: TestedPipelines, tick: int) -> Callable[[], object]:
    async def is_seen() -> bool:
        return await pipelines.rows("seen") == [{"ticks": tick, "latest": tick}]

    return is_seen


async def test_a_turn_that_failed_for_good_is_followed_by_another_after_a_while(pipelines: TestedPipelines) -> None:
    """INV-67."""
    failures = iter([1, 2])

    def failing(work: Work) -> Produced:
        if work.grant.operator_state.get("next", 1) == 2 and next(failures, None):
            raise OperatorFailed("the API does not answer")
        return counting(work)

    pipelines.made.given["ticks"] = failing
    await pipelines.deploy(dag())
    keeper = SourceKeeper(pipelines.runtime.database, pipelines.engine)
    await keeper.look()
    await until(reached(pipelines, 1, "Failed"), "a first failure")
    assert 0.01 <= await keeper.look() <= 0.5
    assert list(await turns(pipelines)) == [1], "it waits before it tries again"
    state = (await pipelines.pipelines.status("feed")).jobs[1]
    assert (state.name, state.state, state.last_error) == ("ticks", "Dead", "the API does not answer")
    async with kept(pipelines):
        await until(reached(pipelines, 3), "a turn that went well")
    assert (await turns(pipelines))[2] == "Failed"


async def test_a_paused_source_stops_and_goes_on_where_it_stopped(pipelines: TestedPipelines) -> None:
    """INV-67."""
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    gate = pipelines.gate("ticks")
    held = Turns(pipelines.runtime.database, pipelines.engine)
    async with kept(pipelines):
        first = await gate.arrived()
        assert await held.pause(pipelines.scope, "feed", "ticks", by="tests") == first.lease.task_id
        await until(reached(pipelines, 1, "Canceled"), "an end of the turn")
        await held.pause(pipelines.scope, "feed", "ticks", by="tests")
        assert (await pipelines.pipelines.status("feed")).jobs[1].state == "Pending"
        await asyncio.wait_for(_looks(pipelines, 3), 10)
        assert await turns(pipelines) == {1: "Canceled"}
        gate.open()
        assert await held.resume(pipelines.scope, "feed", "ticks", by="tests") == first.lease.task_id
        await until(reached(pipelines, 2), "the turn after it")
        with pytest.raises(Conflict, match="is not paused"):
            await held.resume(pipelines.scope, "feed", "ticks", by="tests")


async def _looks(pipelines: TestedPipelines, count: int) -> None:
    keeper = SourceKeeper(pipelines.runtime.database, pipelines.engine)
    for _ in range(count):
        await keeper.look()


async def test_a_source_that_is_still_stopping_is_resumed_once_it_has(pipelines: TestedPipelines) -> None:
    """INV-67."""
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    gate = pipelines.gate("ticks")
    held = Turns(pipelines.runtime.database, pipelines.engine)
    async with kept(pipelines):
        first = await gate.arrived()
        await held.pause(pipelines.scope, "feed", "ticks", by="tests")
        # The turn is held at the gate, so that it ends by being stopped and not by being done.
        assert await held.resume(pipelines.scope, "feed", "ticks", by="tests") == first.lease.task_id
        gate.open()
        await until(reached(pipelines, 2), "the turn after it")


async def test_a_source_is_paused_between_its_turns_and_when_its_turn_was_quicker(pipelines: TestedPipelines) -> None:
    """INV-67."""
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    held = Turns(pipelines.runtime.database, pipelines.engine)
    await held.pause(pipelines.scope, "feed", "ticks", by="tests")
    await until(_ended(pipelines), "an end of the turn that was begun for it")
    await _looks(pipelines, 3)
    assert list(await turns(pipelines)) == [1]
    await held.resume(pipelines.scope, "feed", "ticks", by="tests")
    await until(_ended(pipelines), "an end of the turn that went on")


def _ended(pipelines: TestedPipelines) -> Callable[[], object]:
    async def nothing_open() -> bool:
        return not any(task.open for task in await pipelines.tasks("ticks"))

    return nothing_open


async def test_another_version_drains_the_turn_and_rolling_back_takes_it_up_again(pipelines: TestedPipelines) -> None:
    """INV-67."""
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    gate = pipelines.gate("ticks", version=1)
    async with kept(pipelines):
        old = await gate.arrived()
        second = await pipelines.begin(dag(2))
        await pipelines.built(second)
        await pipelines.pipelines.activate("feed", second.dag_version_id, by="tests")
        await until(_is(pipelines, old.lease.task_id, "Canceled"), "an end of the old turn")
        await until(_new_turn(pipelines, second.plan.dag_version_id), "a turn of the new version")
        gate.open()
        await pipelines.pipelines.rollback("feed", None, by="tests")
        await until(_is(pipelines, old.lease.task_id, "Completed"), "the old turn, taken up again")
        await until(_only_turns_of(pipelines, old.dag_version_id), "an end of the turns of the other version")
    live = [task for task in await pipelines.tasks("ticks") if task.open and task.dag_version_id != old.dag_version_id]
    assert not [task for task in live if not task.cancel_requested]


def _is(pipelines: TestedPipelines, task_id: str, status: str) -> Callable[[], object]:
    async def is_so() -> bool:
        return (await pipelines.engine.by_hand.show(pipelines.scope, task_id)).status == status

    return is_so


def _only_turns_of(pipelines: TestedPipelines, version: str) -> Callable[[], object]:
    async def are_left() -> bool:
        others = [task for task in await pipelines.tasks("ticks") if task.open and task.dag_version_id != version]
        return all(task.cancel_requested for task in others)

    return are_left


def _new_turn(pipelines: TestedPipelines, version: str) -> Callable[[], object]:
    async def is_there() -> bool:
        return any(
            task.dag_version_id == version and turn_number(task.dedupe_key) and task.status == "Completed"
            for task in await pipelines.tasks("ticks")
        )

    return is_there


async def test_an_older_turn_is_not_tried_again_beside_a_newer_one(pipelines: TestedPipelines) -> None:
    """INV-67."""
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    gate = pipelines.gate("ticks")
    async with kept(pipelines):
        first = await gate.arrived()
        await pipelines.engine.by_hand.cancel(pipelines.scope, first.lease.task_id, reason="by hand", by="tests")
        second = await gate.arrived()
        with pytest.raises(Conflict, match="went on without it"):
            await pipelines.engine.by_hand.retry(pipelines.scope, first.lease.task_id, by="tests")
        gate.open()
        await until(_is(pipelines, second.lease.task_id, "Completed"), "the second turn")


async def test_only_sources_that_are_kept_running_are_paused(pipelines: TestedPipelines) -> None:
    pipelines.made.given["ticks"] = counting
    await pipelines.deploy(dag())
    held = Turns(pipelines.runtime.database, pipelines.engine)
    with pytest.raises(InputError, match="is not kept running"):
        await held.pause(pipelines.scope, "feed", "seen", by="tests")
    with pytest.raises(NotFound, match="has no job tocks"):
        await held.pause(pipelines.scope, "feed", "tocks", by="tests")


async def test_organizations_have_turns_of_their_own(
    pipelines: TestedPipelines, other_pipelines: TestedPipelines
) -> None:
    """INV-67."""
    for each in (pipelines, other_pipelines):
        each.made.given["ticks"] = counting
        await each.deploy(dag())
    async with kept(pipelines, keepers=2):
        await until(reached(pipelines, 2), "turns of one")
        await until(reached(other_pipelines, 2), "turns of the other")
