"""Runs a scenario to its end: people ask, faults happen, and when they are over everything must end in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from noetl.engine.dispatch.engine import Engine
from noetl.errors import NoetlError, NotFound
from noetl.testing.engines.memory import SCOPE
from noetl.testing.simulation.checks.ending import check_end
from noetl.testing.simulation.checks.watch import Broken, Line
from noetl.testing.simulation.faults import FAULTY_SECONDS, Fault
from noetl.testing.simulation.mutations import NONE, Mutation
from noetl.testing.simulation.scenario import Scenario
from noetl.testing.simulation.world.admission import Gate
from noetl.testing.simulation.world.chance import from_seed
from noetl.testing.simulation.world.clock import DatabaseClock
from noetl.testing.simulation.world.loop import SimulatedLoop, Stuck
from noetl.testing.simulation.world.playbooks import Wanted
from noetl.testing.simulation.world.process import Died, owner_of
from noetl.testing.simulation.world.world import World

PATIENCE_SECONDS = 150.0
"""How long after the last fault everything must have ended."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a scenario."""

    scenario: Scenario
    broken: Broken | None
    lines: tuple[Line, ...]
    seconds: float
    """Virtual ones."""
    events: int
    ends: tuple[tuple[str, str], ...]


class People:
    """Ask for executions until somebody says that they are there, and cancel some."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.acknowledged: dict[str, int] = {}
        self.cancelled: set[int] = set()

    async def want(self, one: Wanted) -> None:
        """Ask for an execution, again and again under the same key."""
        await asyncio.sleep(one.at)

        async def start(engine: Engine) -> int:
            entry = await engine.catalog.get(SCOPE, one.path, None)
            return (await engine.start(SCOPE, entry, one.workload, requested_by="people", key=one.name)).execution_id

        while True:
            started = await self._asked(start)
            if started is not None:
                self.acknowledged[one.name] = started
                self._world.watch.tell("people", f"know that {one.name} is requested")
                return
            await asyncio.sleep(0.7)

    async def cancel(self) -> None:
        """Cancel the execution that was asked for first."""
        for execution_id in self.acknowledged.values():
            if execution_id not in self._world.watch.status:
                self.cancelled.add(execution_id)

                async def cancel(engine: Engine, one: int = execution_id) -> list[int]:
                    return await engine.cancel(SCOPE, one, reason="enough", by="people")

                await self._asked(cancel)
                return

    async def _asked(self, work: Callable[[Engine], Any]) -> Any:
        """Ask a server that is up; None where it dies first or cannot."""
        servers = self._world.engines()
        if not servers:
            return None
        process, engine = servers[0]
        task = process.spawn(work(engine), "people")
        try:
            async with asyncio.timeout(20.0):
                return await task
        except asyncio.CancelledError:
            if process.is_alive:
                raise
            return None
        except (Died, NotFound, NoetlError, TimeoutError):
            return None


def simulate(scenario: Scenario, mutation: Mutation = NONE) -> Outcome:
    """Run a scenario and return what came of it."""
    loop = SimulatedLoop(owner_of)
    clock = DatabaseClock(loop)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with from_seed(scenario.seed, clock, loop.time), mutation.put_in():
            world = World(scenario, loop, clock, mutation.change)
            try:
                with world.outbox.answering():
                    loop.run_until_complete(_lived(world))
            except Stuck as stuck:
                world.watch.fail("somebody can always go on", str(stuck))
            finally:
                _end(world, loop)
    finally:
        logging.disable(before)
        loop.close()
    watch = world.watch
    return Outcome(
        scenario,
        watch.broken,
        tuple(watch.lines),
        round(loop.time(), 3),
        sum(map(len, world.ledger._shards)),
        tuple((watch.names.get(one, "?"), how) for one, how in watch.status.items()),
    )


async def _lived(world: World) -> None:
    await world.begin()
    people = People(world)
    asking = [asyncio.create_task(people.want(one)) for one in world.scenario.wanted]
    happening = [
        asyncio.create_task(_happen(world, people, one)) for one in world.scenario.faults if isinstance(one, Fault)
    ]
    happening += [asyncio.create_task(Gate(world).run())] if world.scenario.acts else []
    everything = asyncio.create_task(_all_ended(world, people, happening[-1:] if world.scenario.acts else []))
    try:
        async with asyncio.timeout(FAULTY_SECONDS + PATIENCE_SECONDS):
            await asyncio.wait([everything, world.watch.stop], return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        left = [
            one.name for one in world.scenario.wanted if people.acknowledged.get(one.name) not in world.watch.status
        ]
        world.watch.fail(
            "everything ends once faults are over", f"{', '.join(left)} had not ended {PATIENCE_SECONDS:g} s later"
        )
    finally:
        for task in (everything, *asking, *happening):
            task.cancel()
        await asyncio.gather(everything, *asking, *happening, return_exceptions=True)
    if world.watch.broken is None:
        await check_end(world, people.acknowledged, people.cancelled)


async def _all_ended(world: World, people: People, beside: list[asyncio.Task[None]]) -> None:
    while len(people.acknowledged) < len(world.scenario.wanted) or not _is_over(world):  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.5)
    await asyncio.gather(*beside)


def _is_over(world: World) -> bool:
    has_open = bool(world.ledger.work.rows(SCOPE, "execution_head"))
    return not has_open and world.slots.is_over and world.outbox.is_over


async def _happen(world: World, people: People, fault: Fault) -> None:
    await asyncio.sleep(fault.at)
    world.watch.tell("*", str(fault))
    process = world.living.get(fault.who)
    match fault.kind:
        case "crash" if process is not None and process.is_alive:
            process.kill()
            await asyncio.sleep(fault.seconds)
            world.start(fault.who)
        case "stop" if process is not None and process.is_alive:
            process.spawn(world.workers[fault.who].stop(), "stop")
            await asyncio.sleep(fault.seconds)
            if process.is_alive:
                process.kill()
                world.start(fault.who)
        case "pause" if process is not None:
            process.freeze()
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                # Also where everything has ended meanwhile: what stands still cannot be cancelled.
                process.thaw()
        case "clock":
            world.clock.step(fault.seconds)
        case "store_away":
            world.store_away_until = world.loop.time() + fault.seconds
        case "cancel":
            await people.cancel()


def _end(world: World, loop: SimulatedLoop) -> None:
    """Let every process unwind, so that nothing is left of the world."""
    for process in world.living.values():
        process.kill()
    for _ in range(50):
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if not left:
            return
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
