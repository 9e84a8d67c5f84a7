"""A process killed anywhere between a failed run and the message about it is replaced: one alert, told once per channel."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.faults.alerts.alert_runtime import CHANNELS, opened, rules, work
from tests.integration.services.alerts.receiving import Receiver, receiving

from noetl.engine.dispatch.drafts import Drafting
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.stream import execution_stream
from noetl.runtime.assembly.alerts import alerts_of
from noetl.runtime.wiring import Runtime
from noetl.services.alerts.deliveries import DeliveryRow
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.engines.short_leases import until
from noetl.testing.samples.drafts import PRODUCER

pytestmark = [pytest.mark.service, pytest.mark.fault]

PROCESS = Path(__file__).with_name("process.py")
AFTER_SENDING = ("delivery.after_send", "delivery.before_record")
POINTS = (
    "alert.before_record",
    "alert.after_record",
    "delivery.before_claim",
    "delivery.after_claim",
    "delivery.before_send",
    *AFTER_SENDING,
    "delivery.after_record",
)


@pytest.fixture
async def runtime(owner_url: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    """The test's own connection to everything."""
    async with opened(owner_url, tmp_path) as runtime:
        yield runtime


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Who is told."""
    async with receiving() as receiver:
        yield receiver


async def failed_run(runtime: Runtime) -> None:
    """Record a run that failed, and have it projected."""
    drafting, execution_id = Drafting(runtime.ids.mint_many, PRODUCER), runtime.ids.mint()
    stream = execution_stream(runtime.scope, execution_id)
    asked = drafting.one(
        runtime.scope, stream, execution_id, "execution.requested", stream.stream_id,
        meta={"path": "dag/shop", "kind": "emission"}, idempotency_key=f"{execution_id}/requested",
    )  # fmt: skip
    failed = drafting.one(runtime.scope, stream, execution_id, "execution.failed", stream.stream_id, error="no data")
    await runtime.ledger.transact(Transition((Append(stream, [asked, failed], 0),)))
    await runtime.projector().run_until(await runtime.ledger.head())


async def killed(owner_url: str, home: Path, point: str) -> None:
    """Run a process that dies at a point."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROCESS), owner_url, str(home), env={**os.environ, "NOETL_FAULT": f"{point}=kill"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == -signal.SIGKILL, said.decode()


async def delivered(runtime: Runtime) -> list[DeliveryRow]:
    """Work until every channel has its message."""
    own = alerts_of(runtime)

    async def look() -> list[DeliveryRow] | None:
        await work(runtime)
        rows = await own.deliveries.listed(runtime.scope)
        return rows if len(rows) == len(CHANNELS) and all(row.status == "Delivered" for row in rows) else None

    return await until(look, "messages that are delivered")


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_killed_there_leaves_one_alert_told_once_per_channel(
    point: str, runtime: Runtime, receiver: Receiver, owner_url: str, tmp_path: Path
) -> None:
    """INV-79, INV-80."""
    own = alerts_of(runtime)
    await own.applied.apply(runtime.scope, rules(receiver.url))
    await failed_run(runtime)
    await killed(owner_url, tmp_path, point)
    rows = await delivered(runtime)
    assert [one.occurrences for one in await own.reading.listed(runtime.scope)] == [1]
    assert sorted(row.channel for row in rows) == sorted(CHANNELS)
    sent = Counter(receiver.keys)
    assert set(sent) == {row.delivery_id for row in rows}
    assert max(sent.values()) <= 2, "at most one repeat, with the same key"
    # Both channels are told at the same time: what one of them took may not be recorded when the other's message is.
    unsure = {"delivery.after_record": len(rows) - 1, **dict.fromkeys(AFTER_SENDING, len(rows))}
    assert sum(sent.values()) - len(rows) <= unsure.get(point, 0)
    await assert_parity(
        runtime.database, runtime.ledger, connect(runtime.database, runtime.ledger, payloads=runtime.payloads)
    )
