"""Who waits for a signal stops when told to, also when the signal comes at the same moment."""

from __future__ import annotations

import asyncio

import pytest

from noetl.engine.dispatch.polling import Signal


async def test_a_cancellation_is_not_lost_in_a_touch() -> None:
    """INV-181: a worker that is stopped while work appears stops asking for it."""
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(signal.number, 60.0))
    await asyncio.sleep(0)
    signal.touch()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
