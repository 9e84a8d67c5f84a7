"""Metrics of alerts: what is open and what became of messages, as the ledger tells."""

from __future__ import annotations

import pytest
from aiohttp import web
from tests.integration.services.alerts.conftest import Desk, hook_rules
from tests.integration.services.alerts.receiving import Receiver

from noetl.runtime.metrics.process import Metrics
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

pytestmark = pytest.mark.service


async def test_open_alerts_and_messages_are_counted(desk: Desk, playbooks: Playbooks, receiver: Receiver) -> None:
    metrics = Metrics("1", database=desk.runtime.database)
    desk.runtime.ledger.on_transition = metrics.observe
    await desk.apply(hook_rules(receiver, more=", severity: critical"))
    await playbooks.run(playbook("workflow: [{step: start, tool: {kind: python, code: \"raise ValueError('x')\"}}]"))
    await desk.evaluate()
    receiver.answers = [web.Response(status=500)]
    for _ in range(2):
        await desk.sender().drain()
    shown = (await metrics.exposition())[0].decode().splitlines()
    assert 'noetl_alerts_open{severity="critical"} 1.0' in shown
    assert 'noetl_alerts_open{severity="info"} 0.0' in shown
    assert 'noetl_alert_deliveries_total{channel_kind="webhook",result="attempt_failed"} 1.0' in shown
    assert 'noetl_alert_deliveries_total{channel_kind="webhook",result="delivered"} 1.0' in shown
    assert 'noetl_alert_deliveries_total{channel_kind="mail",result="failed"} 0.0' in shown
