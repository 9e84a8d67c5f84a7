"""Children of an execution that failed or was cancelled stop, also when whoever ended it died before it came to them."""

from __future__ import annotations

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import child, playbook, single

from noetl.engine.plan.trigger import Cancelled
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault]

BELOW = playbook("below", single("below", None))
START = """
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: breaks}, {step: waited}, {step: free}]}
  - step: breaks
    tool: {kind: shell, command: exit 1}
"""
PARENT = playbook(
    "above",
    START,
    child("waited", "faults/below", None),
    child("free", "faults/below", None).replace("path:", "wait: false, path:"),
)


async def begun(testbed: EngineTestbed) -> tuple[int, int, int]:
    """Start a parent with a child it waits for and one that goes on without it, and return the three."""
    await testbed.engine.catalog.register(testbed.scope, BELOW)
    parent = await testbed.start(PARENT)

    async def free() -> int | None:
        state = await testbed.engine.executions.state(testbed.scope, parent)
        result = state.results.get("free")
        return None if result is None else int(result.data["execution_id"])

    freed = await until(free, "a child nobody waits for")

    async def waited() -> int | None:
        query = "SELECT execution_id FROM noetl.execution_head WHERE parent_execution_id = $1 AND execution_id <> $2"
        found = await testbed.effects.fetchval(query, parent, freed)
        return None if found is None else int(found)

    return parent, await until(waited, "a child its parent waits for"), freed


async def status(testbed: EngineTestbed, execution_id: int) -> str:
    return (await testbed.engine.executions.state(testbed.scope, execution_id)).status


async def test_children_of_a_failed_parent_are_stopped_by_the_reaper(testbed: EngineTestbed) -> None:
    """INV-44."""
    parent, waited, free = await begun(testbed)
    await testbed.process(fault="decide.after_record=kill", slots=1, reaps=False).killed()
    assert [await status(testbed, one) for one in (parent, waited, free)] == ["FAILED", "RUNNING", "RUNNING"]

    testbed.process(slots=0)
    stopped = await testbed.finished(waited)
    assert (stopped.status, stopped.error) == ("CANCELLED", f"its parent {parent} ended as FAILED")
    assert await status(testbed, free) == "RUNNING"
    await testbed.engine.cancel(testbed.scope, free, reason="enough", by="test")
    await testbed.assert_clean()


@pytest.mark.parametrize("cascade", [True, False])
async def test_a_cancellation_that_broke_off_takes_the_children_along_if_it_was_to(
    testbed: EngineTestbed, cascade: bool
) -> None:
    """INV-44."""
    parent, waited, free = await begun(testbed)
    wish = Cancelled(reason="enough", by="test", cascade=cascade)
    await testbed.engine.executions.trigger(testbed.scope, parent, wish)
    testbed.process(slots=0)
    if cascade:
        for one in (waited, free):
            assert (await testbed.finished(one)).error == f"its parent {parent} was cancelled"
    else:
        testbed.process(slots=2)
        assert [(await testbed.finished(one)).status for one in (waited, free)] == ["COMPLETED", "COMPLETED"]
    await testbed.assert_clean()
