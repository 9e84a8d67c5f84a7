"""A desk for every test of alerts: rules are applied, evaluated and sent on the test's own ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.services.alerts.receiving import Receiver, receiving

from noetl.engine.dispatch.polling import Backoff
from noetl.model.stream import Scope
from noetl.pipelines.tables.partitions import TableReader, TableWriter
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.worker.in_process import InProcess, Operator
from noetl.runtime.assembly.alerts import CHANNELS, alert_operators, alerts_of, evaluate_alerts, sender_of
from noetl.runtime.secrets import open_keyring
from noetl.services.alerts.channels.port import Channel
from noetl.services.alerts.deliveries import DeliveryRow
from noetl.services.alerts.evaluation import Evaluated
from noetl.services.alerts.findings import AlertRow
from noetl.services.alerts.sender import Sender
from noetl.services.credentials.store import CredentialStore
from noetl.spark.lake.storage import Lake
from noetl.testing.engines.pipelines import TestedPipelines, connected
from noetl.testing.engines.playbooks import Playbooks

AT_ONCE = Backoff(0.0, 0.0)


class Desk:
    """What a test does with alerts."""

    def __init__(self, playbooks: Playbooks, scope: Scope) -> None:
        self.playbooks = playbooks
        self.runtime = playbooks.runtime
        self.scope = scope
        self.parts = alerts_of(self.runtime)

    async def apply(self, text: str) -> None:
        """Put rules into use."""
        await self.parts.applied.apply(self.scope, text)

    async def evaluate(self) -> Evaluated:
        """Project what happened and evaluate every rule of every organization."""
        await self.projected()
        return await evaluate_alerts(self.runtime)

    async def projected(self) -> None:
        """Bring the projections up to date."""
        await self.runtime.projector().run_until(await self.runtime.ledger.head())

    async def alerts(self, **wanted: Any) -> list[AlertRow]:
        """Return alerts in the order they were raised."""
        return (await self.parts.reading.listed(self.scope, **wanted))[::-1]

    async def deliveries(self, **wanted: Any) -> list[DeliveryRow]:
        """Return messages in the order they were made."""
        return (await self.parts.deliveries.listed(self.scope, **wanted))[::-1]

    def sender(self, channels: Mapping[str, Channel] = CHANNELS, backoff: Backoff = AT_ONCE) -> Sender:
        """Return a sender that sends when it is told to."""
        return sender_of(self.runtime, channels, backoff=backoff)

    async def credential(self, name: str, type_name: str = "api_key", **data: Any) -> None:
        """Keep a credential of this organization."""
        store = CredentialStore(self.runtime.database, open_keyring(self.runtime.settings))
        await store.put(self.scope, name, type_name, data)

    async def told(self) -> str:
        """Return every event of the database as text, for looking something up in it."""
        async with self.runtime.database.transaction(None, "projector") as connection:
            rows = await connection.fetch("SELECT e::text AS said FROM noetl.event AS e")
        return "\n".join(row["said"] for row in rows)


@pytest.fixture
def desk(playbooks: Playbooks) -> Desk:
    """The desk of the test's organization."""
    return Desk(playbooks, playbooks.scope)


@pytest.fixture
def other_desk(playbooks: Playbooks) -> Desk:
    """The desk of another organization in the same database."""
    return Desk(playbooks, Scope(playbooks.scope.tenant_id, "another"))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A web server that keeps what it is sent."""
    async with receiving() as receiver:
        yield receiver


def hook_rules(receiver: Receiver, rule: str = "on: run_failed", *, more: str = "", channel: str = "") -> str:
    """Return a file of alerts with one rule and one webhook."""
    return f"""
kind: Alerts
name: ops
channels:
  hook: {{kind: webhook, url: "{receiver.url}", allow_private: true{channel}}}
rules:
  - {{name: watched, {rule}, channels: [hook]{more}}}
"""


@asynccontextmanager
async def alerting(playbooks: Playbooks, engine: TaskEngine, scope: Scope) -> AsyncIterator[TestedPipelines]:
    """Give pipelines of an organization whose worker knows the operators of alerts."""
    runtime, home = playbooks.runtime, playbooks.home
    lake = Lake(str(home / "lake"))
    tested = connected(engine, runtime, scope, lake, home / scope.organization_id)
    operators: dict[str, Operator] = {
        "made": tested.made,
        **alert_operators(replace(runtime, scope=scope), TableReader(tested.lake)),
    }
    here = InProcess(operators, TableWriter(tested.lake))
    async with tested.worker(here, lambda grant, status, error: None):
        yield tested


@pytest.fixture
async def watched(playbooks: Playbooks, task_engine: TaskEngine) -> AsyncIterator[TestedPipelines]:
    """Pipelines that raise and route alerts."""
    async with alerting(playbooks, task_engine, playbooks.scope) as tested:
        yield tested


@pytest.fixture
async def other_watched(playbooks: Playbooks, task_engine: TaskEngine) -> AsyncIterator[TestedPipelines]:
    """Those of another organization in the same database."""
    async with alerting(playbooks, task_engine, Scope(playbooks.scope.tenant_id, "another")) as tested:
        yield tested
