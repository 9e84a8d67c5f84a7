"""Opens the bucket of hints that processes at one NATS server share, and passes on by it that something is to be had.

Whoever tells or is told does not wait for the bucket, and finds out by itself, a little later, what a lost hint was about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

from noetl.engine.dispatch.polling import Signal
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.hints import Hints, count, sum_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import mirrors, stream_name

GATHER_SECONDS: Final = 0.01
"""What is told within this time is told once."""
SHARDS_LOOK_SECONDS: Final = 0.2


@asynccontextmanager
async def open_hints(settings: Settings) -> AsyncIterator[Hints | None]:
    """Give the bucket for the time of the block; None where events are not mirrored to NATS."""
    place = settings.event_store.connection
    if not mirrors(settings) or place.url is None:
        yield None
        return
    # Only here, as in `streams`: who shares no hints need not wait for the client to be imported.
    from noetl.kernel.stream.nats.hints import NatsHints
    from noetl.runtime.nats.login import nats_connection

    connection = nats_connection(settings)
    try:
        yield NatsHints(connection, stream_name(settings, "hints"), replicas=place.replicas)
    finally:
        await connection.close()


@asynccontextmanager
async def passing(
    hints: Hints, key: str, heard: Callable[[], None], look_seconds: float
) -> AsyncIterator[Callable[[], None]]:
    """Give what tells everybody else who shares a note, for the time of the block; `heard` is called when one of them told."""
    news = asyncio.Queue[Literal["told", "over"]]()
    own = last = 0
    # What is counted is noted before anybody looks: a note of one's own that is not known as such would hide another's.
    counting = asyncio.Lock()

    def told() -> None:
        if news.empty():
            news.put_nowait("told")

    async def tell() -> None:
        nonlocal own, last
        while await news.get() == "told":
            # Begun by the clock, a counter that was lost never comes to a sum that somebody has seen.
            begin = time.time_ns()
            async with counting:
                total = await count(hints, key, begin=begin)
                if total == begin + 1:
                    own, last = 1, begin
                elif total is not None:
                    own += 1
            await asyncio.sleep(GATHER_SECONDS)

    async def look() -> None:
        nonlocal own, last
        async with counting:
            own, last = 0, sum_of(await hints.get(key))
        while True:
            await asyncio.sleep(look_seconds)
            async with counting:
                found = sum_of(await hints.get(key))
                # More than this process itself told of, or less than there was: somebody else did, or the note began anew.
                if found != last and not 0 < found - last <= own:
                    heard()
                own, last = 0, found

    telling = asyncio.create_task(tell(), name=f"noetl-tell-{key}")
    looking = asyncio.create_task(look(), name=f"noetl-look-{key}")
    try:
        yield told
        # What was told last, such as that this process goes, is still passed on.
        news.put_nowait("over")
        await telling
    finally:
        await ended(telling, looking)


@asynccontextmanager
async def shards_moved(settings: Settings, role: str, heard: Callable[[], None]) -> AsyncIterator[Callable[[], None]]:
    """Give what tells the others of a role that shards are to be had, or somebody came for some; `heard` hears it of them."""
    async with open_hints(settings) as hints:
        if hints is None:
            yield lambda: None
            return
        key = f"shards/{settings.runtime.cluster_id}/{role}"
        async with passing(hints, key, heard, SHARDS_LOOK_SECONDS) as told:
            yield told


KEY: Final = "work"
LOOK_SECONDS: Final = 0.05


@asynccontextmanager
async def nudging(signal: Signal, hints: Hints) -> AsyncIterator[None]:
    """Pass touches of a signal on to the processes that share the hints, and theirs to it, for the time of the block."""
    async with passing(hints, KEY, lambda: signal.touch(heard=True), LOOK_SECONDS) as told:
        signal.passed_on = told
        try:
            yield
        finally:
            signal.passed_on = None
