"""What goes on by itself: a job of the platform evaluates, and a sender sends what is due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.integration.services.alerts.conftest import Desk, hook_rules
from tests.integration.services.alerts.receiving import Receiver

from noetl.runtime.assembly.alerts import EVALUATE, evaluate_alerts_job, open_sender
from noetl.services.schedule.handlers.port import SlotRun
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.engines.short_leases import until

pytestmark = pytest.mark.service

BROKEN = "workflow: [{step: start, tool: {kind: python, code: \"raise ValueError('no data')\"}}]"


async def test_the_job_of_the_platform_evaluates_and_a_sender_sends(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-79, INV-80."""
    assert EVALUATE.problems() == []
    job = evaluate_alerts_job(desk.runtime)
    slot = SlotRun(
        scope=desk.scope, schedule_id="s", name="evaluate_alerts", target={}, plan_time=datetime.now(UTC), attempt=1,
        key="slot/s/1", runner="tests",
    )  # fmt: skip
    async with open_sender(desk.runtime):
        await desk.apply(hook_rules(receiver))
        await playbooks.run(playbook(BROKEN))
        await desk.projected()
        outcomes = [await job(slot) for _ in range(2)]
        async with asyncio.timeout(30):
            await receiver.changed.wait()

        async def done() -> bool:
            return [row.status for row in await desk.deliveries()] == ["Delivered"]

        await until(done, "a message that is delivered")
    assert [one.rows_affected for one in outcomes] == [1, 0]
    assert [one.evaluation for one in await desk.alerts()] == ["slot/s/1"]
    assert len(receiver.got) == 1
