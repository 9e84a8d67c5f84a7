"""Roles stop when a signal asks for it, also when whoever would be told of that is gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.runtime.service import Stopping, serve_until_stopped

PATIENCE = 10


def gone(sentence: str) -> None:
    """Tell nobody anything, as where the reader of a pipe went away."""
    raise BrokenPipeError


async def test_a_signal_ends_a_role_whole_though_nobody_hears_of_it() -> None:
    stands, left = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def role(stopping: Stopping) -> AsyncIterator[None]:
        stands.set()
        yield
        left.set()

    serving = asyncio.create_task(serve_until_stopped(role, tell=gone))
    await stands.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(serving, PATIENCE)
    assert left.is_set()


async def test_a_signal_cuts_a_role_short_that_does_not_stand_though_nobody_hears_of_it() -> None:
    starting = asyncio.Event()

    @asynccontextmanager
    async def role(stopping: Stopping) -> AsyncIterator[None]:
        starting.set()
        await asyncio.Event().wait()
        yield

    serving = asyncio.create_task(serve_until_stopped(role, tell=gone))
    await starting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert not await asyncio.wait_for(serving, PATIENCE)
