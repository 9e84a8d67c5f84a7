"""Tells other processes at once that work waits, by a note that all of them share; without it they look twice a second.

The note is a hint: lost, old or wiped, it costs somebody half a second and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from noetl.dispatch.signal import Signal
from noetl.runtime.settings import Settings
from noetl.runtime.streams import mirrors, stream_name
from noetl.stream.hints import Hints, sum_of
from noetl.stream.nats_connection import NatsConnection
from noetl.stream.nats_hints import NatsHints

KEY: Final = "work"
LOOK_SECONDS: Final = 0.05
GATHER_SECONDS: Final = 0.01
"""What is issued within this time is told once."""


@asynccontextmanager
async def open_nudging(settings: Settings, signal: Signal) -> AsyncIterator[None]:
    """Pass touches of a signal on to the processes that share the settings' NATS server, and theirs to it."""
    place = settings.event_store.connection
    if not mirrors(settings) or place.url is None:
        yield
        return
    connection = NatsConnection(place.url.get_secret_value(), credentials_file=place.credentials_file)
    try:
        async with nudging(signal, NatsHints(connection, stream_name(settings, "hints"), replicas=place.replicas)):
            yield
    finally:
        await connection.close()


@asynccontextmanager
async def nudging(signal: Signal, hints: Hints) -> AsyncIterator[None]:
    """Pass touches on by hints for the time of the block."""
    told = asyncio.Event()
    own = 0
    last = sum_of(await hints.get(KEY))

    async def tell() -> None:
        nonlocal own
        while True:
            await told.wait()
            told.clear()
            if await hints.count(KEY) is not None:
                own += 1
            await asyncio.sleep(GATHER_SECONDS)

    async def look() -> None:
        nonlocal own, last
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            mine, found = own, sum_of(await hints.get(KEY))
            # More than this process itself told of, or less than there was: somebody else did, or the note began anew.
            if found != last and not 0 < found - last <= mine:
                signal.touch(heard=True)
            own, last = own - mine, found

    signal.passed_on = told.set
    tasks = [asyncio.create_task(tell(), name="noetl-tell-work"), asyncio.create_task(look(), name="noetl-look-work")]
    try:
        yield
    finally:
        signal.passed_on = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
