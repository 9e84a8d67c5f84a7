"""Playbooks that call themselves without end: cancelled while they grow, or left behind by whoever cancelled, nothing stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import child, playbook, single

from noetl.engine.dispatch.children import CLOSING_SECONDS
from noetl.engine.plan.fact import Fact
from noetl.engine.plan.state import State
from noetl.engine.plan.trigger import Cancelled
from noetl.model.stream import Scope
from noetl.testing.engines.short_leases import Driven, open_short_leased, until

pytestmark = [pytest.mark.service, pytest.mark.fault]

WITHOUT_END = 1_000_000
LONG = 25
ENDLESS = playbook("endless", child("again", "faults/endless", None))
ENDLESS_TASK = ENDLESS.replace("kind: playbook,", "kind: playbook, set: {ctx.seen: true},")
LAST = playbook("last", single("last", None))


async def open_executions(testbed: EngineTestbed) -> int:
    return int(await testbed.effects.fetchval("SELECT count(*) FROM noetl.execution_head"))


async def started(testbed: EngineTestbed) -> int:
    query = "SELECT count(*) FROM noetl.event WHERE event_type = 'execution.requested'"
    return int(await testbed.effects.fetchval(query))


@asynccontextmanager
async def growing(testbed: EngineTestbed, text: str) -> AsyncIterator[tuple[Driven, int]]:
    """Let a process of its own engine run a playbook that calls itself, and give that and the first execution once it is long."""
    async with open_short_leased(testbed.url, testbed.home, slots=4, max_child_depth=WITHOUT_END) as driven:
        entry = (await driven.engine.catalog.register(testbed.scope, text)).entry
        payload = {"pg": {"dsn": testbed.url}}
        first = await driven.engine.start(testbed.scope, entry, payload, requested_by="test")

        async def is_long() -> bool:
            return await started(testbed) >= LONG

        await until(is_long, f"{LONG} executions")
        yield driven, first.execution_id


@pytest.mark.parametrize("text", [ENDLESS, ENDLESS_TASK], ids=["suspended", "on a worker"])
@pytest.mark.parametrize("own", [True, False], ids=["by the process that grows it", "by another"])
async def test_cancelling_a_chain_that_grows_ends_all_of_it(testbed: EngineTestbed, text: str, own: bool) -> None:
    """INV-140, INV-44."""
    async with growing(testbed, text) as (driven, first):
        asked = driven.engine if own else testbed.engine
        cancelled = await asked.cancel(testbed.scope, first, reason="enough", by="test")
        assert cancelled[0] == first
        assert len(cancelled) >= LONG
        before = await started(testbed)
        assert await open_executions(testbed) == 0

        # Whatever was under way when it was cancelled has come to nothing.
        await driven.engine.children.settled()
        assert (await started(testbed), await open_executions(testbed)) == (before, 0)
    states = [await testbed.engine.executions.state(testbed.scope, one) for one in cancelled]
    assert {state.status for state in states} == {"CANCELLED"}
    assert states[0].error == "enough"
    assert states[-1].error == f"its parent {states[-1].parent_execution_id} was cancelled: enough"
    await testbed.assert_clean()


class Held:
    """Children that are to be started, held back until the test starts them."""

    def __init__(self, testbed: EngineTestbed) -> None:
        self._testbed = testbed
        self.waiting: list[tuple[Scope, State, Fact]] = []
        testbed.engine.executions.on_child = lambda *asked: self.waiting.append(asked)

    async def start(self) -> int:
        """Start the one that was asked for first and return its id, whether it is there then or not."""
        scope, parent, issued = self.waiting.pop(0)
        children = self._testbed.engine.children
        await children.start_suspended(scope, parent.execution_id, issued.command_id or "", issued.meta, issued.context)
        return int(issued.meta["child_execution_id"])

    async def chain(self, levels: int) -> list[int]:
        """Start a playbook that calls itself, down so many levels, and return their ids from the first on."""
        found = [await self._testbed.start(ENDLESS)]
        for _ in range(levels):
            found.append(await self.start())
        return found


@pytest.mark.parametrize("cascade", [True, False])
async def test_nothing_is_started_below_an_execution_that_was_cancelled(testbed: EngineTestbed, cascade: bool) -> None:
    """INV-140: whoever cancelled it has not come down to the parent yet, and may never do."""
    held = Held(testbed)
    first, *below = await held.chain(3)
    wish = Cancelled(reason="enough", by="test", cascade=cascade)
    await testbed.engine.executions.trigger(testbed.scope, first, wish)
    late = await held.start()
    assert await testbed.engine.executions.exists(testbed.scope, late) is not cascade
    assert not (await testbed.engine.executions.state(testbed.scope, below[-1])).ended
    cancelled = await testbed.engine.cancel(testbed.scope, first, reason="really", by="test")
    assert cancelled == (below if cascade else [*below, late])
    told = f"what execution {first} started was cancelled: really"
    assert (await testbed.engine.executions.state(testbed.scope, below[0])).error == told
    await testbed.assert_clean()


async def test_a_start_under_way_when_those_above_are_cancelled_ends_cancelled(
    testbed: EngineTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-140: it looked upwards before the first was cancelled, and is recorded after those to cancel were looked for."""
    held = Held(testbed)
    first, *below = await held.chain(3)
    executions, catalog = testbed.engine.executions, testbed.engine.catalog
    get, trigger = catalog.get, executions.trigger
    has_looked, may_go_on = asyncio.Event(), asyncio.Event()

    async def get_later(*asked: Any) -> Any:
        has_looked.set()
        await may_go_on.wait()
        return await get(*asked)

    async def trigger_later(scope: Scope, execution_id: int, wish: Any, **options: Any) -> Any:
        if execution_id == below[0]:
            may_go_on.set()
            await starting
        return await trigger(scope, execution_id, wish, **options)

    monkeypatch.setattr(catalog, "get", get_later)
    monkeypatch.setattr(executions, "trigger", trigger_later)
    starting = asyncio.create_task(held.start())
    await has_looked.wait()
    cancelled = await testbed.engine.cancel(testbed.scope, first, reason="enough", by="test")
    assert cancelled == [first, *below, await starting]
    await testbed.assert_clean()


async def test_one_look_of_the_reaper_stops_a_whole_chain(testbed: EngineTestbed) -> None:
    """INV-44."""
    first, *below = await Held(testbed).chain(12)
    await testbed.engine.executions.trigger(testbed.scope, first, Cancelled(reason="enough", by="test"))

    await until(testbed.engine.reaper.sweep, "a look that found something")
    assert await open_executions(testbed) == 0
    errors = [(await testbed.engine.executions.state(testbed.scope, one)).error for one in below[:2]]
    assert errors[0] == f"its parent {first} was cancelled"
    assert errors[1] == f"its parent {below[0]} was cancelled: {errors[0]}"
    await testbed.assert_clean()


@pytest.mark.parametrize("number", [0, 1], ids=["the first", "one between"])
async def test_what_ended_executions_started_is_found_through_them(testbed: EngineTestbed, number: int) -> None:
    """INV-44: those between have ended, and what they started goes on without them."""
    await testbed.engine.catalog.register(testbed.scope, LAST)
    await testbed.engine.catalog.register(testbed.scope, playbook("second", not_waited("down", "faults/last")))
    ended = [await testbed.start(playbook("first", not_waited("down", "faults/second")))]
    other = await testbed.start(LAST)
    await testbed.engine.children.settled()
    query = "SELECT execution_id FROM noetl.event WHERE event_type = 'execution.requested' AND parent_execution_id = $1"
    ended.append(int(await testbed.effects.fetchval(query, ended[0])))
    last = int(await testbed.effects.fetchval(query, ended[1]))
    states = [(await testbed.engine.executions.state(testbed.scope, one)).status for one in (*ended, last)]
    assert states == ["COMPLETED", "COMPLETED", "RUNNING"]

    async def cancelled(*, cascade: bool = True) -> list[int]:
        return await testbed.engine.cancel(testbed.scope, ended[number], reason="enough", by="test", cascade=cascade)

    assert [await cancelled(cascade=False), await cancelled(), await cancelled()] == [[], [last], []]
    assert not (await testbed.engine.executions.state(testbed.scope, other)).ended, "what is not below it goes on"
    await testbed.engine.cancel(testbed.scope, other, reason="enough", by="test")
    await testbed.assert_clean()


def not_waited(step: str, path: str) -> str:
    """Return a step that starts a child and goes on at once."""
    return child(step, path, None).replace("path:", "wait: false, path:")


async def test_a_process_that_ends_starts_nothing_more(testbed: EngineTestbed) -> None:
    """Each one starts the next and ends, so there is always another to be started."""
    endless = playbook("endless", not_waited("again", "faults/endless"))
    async with growing(testbed, endless) as (driven, first), asyncio.timeout(CLOSING_SECONDS / 2):
        await driven.engine.close()
        before = await started(testbed)
    assert (await started(testbed), await open_executions(testbed)) == (before, 1)
    (last,) = await testbed.engine.cancel(testbed.scope, first, reason="enough", by="test")
    assert (await testbed.engine.executions.state(testbed.scope, last)).depth == before - 1
    await testbed.assert_clean()
