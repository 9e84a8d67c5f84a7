"""What moves events in this process: the relay, the materializer, and the way that the settings want for writes.

Shards are held by lease, so any number of processes may do so at once, as roles of their own or inside a server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from noetl.errors import NoetlError
from noetl.ledger.notifier import Notifier
from noetl.ledger.shard_leases import ShardLeases
from noetl.runtime.durability import loss_window
from noetl.runtime.relay import relaying, shard_leases
from noetl.runtime.settings import Settings
from noetl.runtime.streams import mirrors, open_stream
from noetl.runtime.wiring import Runtime
from noetl.stream.draining import drained, trimmed
from noetl.stream.facts import Facts
from noetl.stream.journal import Journal
from noetl.stream.loss import lost_facts
from noetl.stream.materializer import Materializer
from noetl.stream.port import EventStream
from noetl.stream.relay_filling import RelayMeter
from noetl.stream.shadow import Shadow

_log = logging.getLogger(__name__)

Told = Callable[[frozenset[int]], None]
Count = Callable[[int], None]

_DRAIN_SECONDS = 10.0
_WATCH_SECONDS = 1.0
_NAMED = 20
_TRIM_SECONDS = 600.0


@asynccontextmanager
async def open_write_path(
    runtime: Runtime,
    role: str,
    said: Callable[[str], None] = _log.warning,
    observe: Callable[[float], None] = lambda seconds: None,
    meter: RelayMeter | None = None,
) -> AsyncIterator[Facts | None]:
    """Let events take the way that the settings want, with what it needs running in this process, for the block.

    Gives what records facts through the stream, where that is the way.
    """
    settings, wanted = runtime.settings, runtime.settings.event_store.write_path
    now = await runtime.ledger.way.look()
    if now == "ledger" and not mirrors(settings):
        yield None
        return
    async with AsyncExitStack() as stack:
        writes = None
        if wanted == "stream" or now != "ledger":
            writes = await stack.enter_async_context(open_stream(settings, runtime.database, "writes"))
            await writes.open()
            await stack.enter_async_context(open_materializer(runtime, role, writes))
        elif wanted == "shadow":
            await stack.enter_async_context(open_shadow(runtime, role))
        events = await stack.enter_async_context(open_stream(settings, runtime.database, "events"))
        await stack.enter_async_context(relaying(runtime, events, meter=meter, writes=writes))
        if wanted != "stream":
            await to_ledger(runtime, writes)
            yield None
            return
        said(loss_window(settings) or "")
        await runtime.ledger.way.change("stream")
        assert writes is not None
        await _tell_lost(runtime, writes)
        journal = Journal(journal_directory(settings))
        stack.callback(journal.close)
        facts = Facts(writes, runtime.ledger.way, journal, observe)
        stack.push_async_callback(facts.close)
        watching = asyncio.get_running_loop().create_task(_watch(runtime), name="noetl-write-path")
        stack.push_async_callback(_ended, watching)
        yield facts
        await _drained(runtime, writes)


@asynccontextmanager
async def open_materializer(
    runtime: Runtime, role: str, writes: EventStream, *, told: Told = lambda _: None, count: Count = lambda _: None
) -> AsyncIterator[Materializer]:
    """Write what was published into the ledger for the time of the block; `told` gets its shards, `count` its events."""
    notifier = Notifier(runtime.database)
    leases = shard_leases(runtime, "materializer", holder_name(runtime, role))
    materializer = Materializer(runtime.database, writes, leases.token, notifier.touch, count)

    def changed(shards: frozenset[int]) -> None:
        materializer.hold(shards)
        told(shards)

    await leases.start(changed)
    trimming = asyncio.get_running_loop().create_task(_trim(runtime, leases, writes), name="noetl-trim")
    try:
        yield materializer
    finally:
        await _ended(trimming)
        await materializer.stop()
        await leases.stop()
        await notifier.close()


@asynccontextmanager
async def open_shadow(runtime: Runtime, role: str, *, told: Told = lambda _: None) -> AsyncIterator[Shadow]:
    """Compare what a materializer would write with the ledger for the time of the block; `told` gets its shards."""
    async with open_stream(runtime.settings, runtime.database, "events") as events:
        leases = shard_leases(runtime, "materializer", holder_name(runtime, role))
        shadow = Shadow(runtime.database, events, leases.token)

        def changed(shards: frozenset[int]) -> None:
            shadow.hold(shards)
            told(shards)

        await leases.start(changed)
        try:
            yield shadow
        finally:
            await shadow.stop()
            await leases.stop()


def holder_name(runtime: Runtime, role: str) -> str:
    """Return the name of this process among those that hold shards."""
    return f"{runtime.settings.runtime.node_id}/{socket.gethostname()}/{role}/{os.getpid()}"


def journal_directory(settings: Settings) -> Path:
    """Return where processes of this node note which facts the stream acknowledged."""
    return settings.runtime.home / "run" / "published"


async def _tell_lost(runtime: Runtime, writes: EventStream) -> None:
    """Say loudly which facts a stream lost that it had acknowledged."""
    gone = await lost_facts(runtime.database, writes, journal_directory(runtime.settings))
    if gone:
        ids = ", ".join(str(one.noted.event_id) for one in gone[:_NAMED])
        _log.error(
            "the stream lost %d facts that it had acknowledged: events %s; see `noetl stream lost`", len(gone), ids
        )


async def to_ledger(runtime: Runtime, writes: EventStream | None) -> None:
    """Let events go straight to the ledger again, once everything that is on its way there has come."""
    drain = None if writes is None else partial(drained, runtime.database, writes)
    await runtime.ledger.way.change("ledger", drain)


async def _drained(runtime: Runtime, writes: EventStream) -> None:
    """Let what waits come to the ledger before the relay of this process stops; another one would do it too."""
    try:
        await runtime.ledger.settled(_DRAIN_SECONDS)
        await drained(runtime.database, writes, _DRAIN_SECONDS)
    except NoetlError as problem:
        _log.warning("%s; the next process goes on with them", problem.message)


async def _trim(runtime: Runtime, leases: ShardLeases, writes: EventStream) -> None:
    """Keep the stream of writes short: what is in the ledger is not needed there."""
    while True:
        await asyncio.sleep(_TRIM_SECONDS)
        # One process is enough, and somebody always has the first shard.
        if 0 in leases.held:
            try:
                await trimmed(runtime.database, writes)
            except NoetlError as problem:
                _log.warning("the stream of writes was not trimmed: %s", problem.message)


async def _watch(runtime: Runtime) -> None:
    """Learn that the way was changed by another process, also where nothing is appended."""
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        with suppress(NoetlError):
            await runtime.ledger.way.look()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
