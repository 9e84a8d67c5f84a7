"""A process that is killed while it decides leaves its count, and its execution ends instead of killing one after another."""

from __future__ import annotations

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import playbook

from noetl.engine.dispatch.executions import DECISIONS_BEGUN_MAX
from noetl.testing.attacks.documents import LENGTHY_TEMPLATE

pytestmark = [pytest.mark.service, pytest.mark.fault]

ARC = f"""
  - step: first
    tool: {{kind: python, code: "result = 1"}}
    next: {{arcs: [{{step: second, when: "{LENGTHY_TEMPLATE}"}}]}}
  - step: second
    tool: {{kind: noop}}
"""


async def test_a_decision_that_kills_its_process_ends_its_execution(testbed: EngineTestbed) -> None:
    """INV-189: the count is in the database before anything is evaluated."""
    execution_id = await testbed.start(playbook("lengthy", ARC))
    await testbed.process(fault="decide.lengthy=kill").killed()
    running = testbed.engine._stores.running
    head = await running.head(testbed.scope, execution_id)
    assert head is not None
    # The process that was killed is counted already; the others die here.
    for begun in range(2, DECISIONS_BEGUN_MAX + 1):
        assert await running.deciding(testbed.scope, execution_id, head.version) == begun
    testbed.process()
    state = await testbed.finished(execution_id)
    assert state.status == "FAILED"
    assert "playbook faults/lengthy: deciding what follows step first was begun 5 times" in (state.error or "")
    await testbed.assert_clean()
