"""Alerts of one process, connected to its runtime: what evaluates rules, what sends messages, and the operators of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.polling import Backoff
from noetl.engine.tools.port import Credentials
from noetl.model.stream import Scope
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.worker.in_process import Operator
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.outgoing import rights_of
from noetl.runtime.secrets import LocalSecrets
from noetl.runtime.wiring import Runtime
from noetl.services.alerts.alerts import Alerts, connect_alerts
from noetl.services.alerts.channels.mail import MailChannel
from noetl.services.alerts.channels.port import Channel
from noetl.services.alerts.channels.webhooks import SlackChannel, WebhookChannel
from noetl.services.alerts.evaluate_operator import AlertEvaluate
from noetl.services.alerts.evaluation import Evaluated
from noetl.services.alerts.route_operator import AlertRoute
from noetl.services.alerts.sender import BACKOFF, Sender
from noetl.services.schedule.handlers.port import Handler, Outcome, SlotRun
from noetl.services.schedule.spec import Spec

CHANNELS: Final[Mapping[str, Channel]] = {
    "webhook": WebhookChannel(),
    "slack": SlackChannel(),
    "mail": MailChannel(),
}

EVALUATE: Final = Spec(expression="* * * * *", catch_up_seconds=120.0, max_attempts=1)
"""When `evaluate_alerts` is due: each minute, the newest one only."""


def alerts_of(runtime: Runtime, role: str = "alerts") -> Alerts:
    """Connect the parts of alerts; nothing runs by itself."""
    drafting = Drafting(runtime.ids.mint_many, producer_of(runtime, role))
    return connect_alerts(runtime.database, runtime.ledger, drafting, runtime.ids.mint)


async def evaluate_alerts(runtime: Runtime, evaluation: str | None = None) -> Evaluated:
    """Evaluate the rules of every organization, once."""
    return await alerts_of(runtime).evaluating.all(evaluation or f"round/{runtime.ids.mint()}")


def evaluate_alerts_job(runtime: Runtime) -> Handler:
    """Return the job of the platform that evaluates all rules, for schedulers to run each minute."""

    async def evaluate(slot: SlotRun) -> Outcome:
        done = await evaluate_alerts(runtime, slot.key)
        return Outcome(rows_affected=done.raised + done.resolved, result=msgspec.to_builtins(done))

    return evaluate


def alert_operators(runtime: Runtime, reader: TableReader) -> dict[str, Operator]:
    """Return the operators of jobs that raise and route alerts."""
    own = alerts_of(runtime)
    return {
        "alert_evaluate": AlertEvaluate(runtime.scope, runtime.database, own.judging, reader),
        "alert_route": AlertRoute(runtime.scope, runtime.ledger, own.writing, own.applied, reader),
    }


def sender_of(runtime: Runtime, channels: Mapping[str, Channel] = CHANNELS, *, backoff: Backoff = BACKOFF) -> Sender:
    """Connect a sender; it sends when it is told to."""
    own, settings = alerts_of(runtime), runtime.settings
    secrets: dict[Scope, LocalSecrets] = {}

    def credentials(scope: Scope) -> Credentials:
        return secrets.setdefault(scope, LocalSecrets(settings, runtime.database, scope))

    return Sender(
        own.deliveries,
        own.applied,
        channels,
        credentials,
        worker=producer_of(runtime, "sender"),
        backoff=backoff,
        lease_seconds=settings.alerts.lease_seconds,
        every_seconds=settings.alerts.every_seconds,
        allow_private=settings.alerts.allow_private,
        rights=rights_of(settings, runtime.database),
    )


@asynccontextmanager
async def open_sender(runtime: Runtime) -> AsyncIterator[Sender]:
    """Send messages about alerts for the time of the block."""
    sender = sender_of(runtime)
    sender.start()
    try:
        yield sender
    finally:
        await sender.stop()
