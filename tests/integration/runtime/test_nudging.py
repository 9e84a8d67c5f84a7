"""Work that one process issues wakes another at once, by a hint that may vanish at any time."""

from __future__ import annotations

import asyncio

from noetl.engine.dispatch.polling import Signal
from noetl.kernel.stream.hints import MemoryHints
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.hints import NatsHints
from noetl.runtime.streams.hints import nudging

LONG = 30.0


async def woken(signal: Signal, seen: int) -> None:
    """Wait for a touch; a hint that never comes makes the test run out of time."""
    await signal.wait(seen, LONG)
    assert signal.number > seen


async def test_a_touch_here_wakes_those_who_wait_elsewhere_and_comes_back_to_nobody() -> None:
    here, there, hints = Signal(), Signal(), MemoryHints()
    async with nudging(there, hints), nudging(here, hints):
        for _ in range(3):
            seen, own = there.number, here.number
            here.touch()
            await woken(there, seen)
            assert here.number == own + 1


async def test_what_vanishes_under_way_costs_nothing_but_time(
    nats_connection: NatsConnection, stream_prefix: str
) -> None:
    here, there = Signal(), Signal()
    bucket = f"{stream_prefix}_hints"
    async with nudging(here, NatsHints(nats_connection, bucket)), nudging(there, NatsHints(nats_connection, bucket)):
        seen = there.number
        here.touch()
        await woken(there, seen)
        jetstream = await nats_connection.jetstream()
        await jetstream.delete_key_value(bucket)
        # What is told while the bucket is away may be lost; those who look by themselves find it.
        async with asyncio.timeout(LONG):
            while there.number == seen + 1:
                here.touch()
                await asyncio.sleep(0)
                await there.wait(seen + 1, 0.2)
