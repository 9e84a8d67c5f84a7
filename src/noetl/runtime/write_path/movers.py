"""What moves events in this process: the relay, the materializer, and the way that the settings want for writes.

Shards are held by lease, so any number of processes may do so at once, as roles of their own or inside a server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial

from noetl.errors import NoetlError
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.notifier import Notifier
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.losses.journal import Journal
from noetl.kernel.stream.port import EventStream
from noetl.kernel.stream.relay.pending_events import OVERDUE_SECONDS
from noetl.kernel.stream.relay.publisher import RelayMeter
from noetl.kernel.stream.write_path.facts import Facts
from noetl.kernel.stream.write_path.materializer import Materializer
from noetl.kernel.stream.write_path.shadow import Shadow, divergence
from noetl.kernel.stream.write_path.written_messages import drained, trimmed
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.streams.relay import relaying, shard_leases
from noetl.runtime.wiring import Runtime
from noetl.runtime.write_path.choice import Way, applied_way, check_followed, loss_window, refusal_of
from noetl.runtime.write_path.leftovers import bringing_leftovers
from noetl.runtime.write_path.losses import journal_directory, tell_noted, telling_losses
from noetl.runtime.write_path.message_keys import StreamKeys
from noetl.runtime.write_path.watch import watching

_log = logging.getLogger(__name__)

Told = Callable[[frozenset[int]], None]
Count = Callable[[int], None]

_DRAIN_SECONDS = 10.0
_SETTLE_SECONDS = OVERDUE_SECONDS + 15.0
"""Decided events that a stream lost are published again after a while, and a change of the write path waits for them."""
_TRIM_SECONDS = 600.0
_CHANGE_SECONDS = 60.0
"""How long a change by another process is waited for."""


@asynccontextmanager
async def open_write_path(
    runtime: Runtime,
    role: str,
    said: Callable[[str], None] = _log.warning,
    observe: Callable[[float], None] = lambda seconds: None,
    meter: RelayMeter | None = None,
    lost: Count | None = None,
    refused: Count = lambda messages: None,
    *,
    serves: bool = False,
    beside: Sequence[Runtime] = (),
) -> AsyncIterator[Facts | None]:
    """Let events take the way that this process wants, or the one it finds, with what that needs running, for the block.

    A process that `serves` applies its setting, any other one only a setting that was given. Gives what records facts
    through the stream, where that is the way. `lost` gets how many facts a stream lost, `refused` how many messages that
    nobody of this installation signed; other runtimes of this process are `beside`.
    """
    settings, way = runtime.settings, runtime.ledger.way
    if not mirrors(settings):
        async with _without_stream(runtime, lost, beside):
            yield None
        return
    wanted, now = applied_way(settings, serves=serves), await way.look()
    async with AsyncExitStack() as stack:
        writes = await stack.enter_async_context(open_stream(settings, runtime.database, "writes", refused))
        materializes = wanted == "stream" or now != "ledger"
        if materializes:
            await writes.open()
            await stack.enter_async_context(open_materializer(runtime, role, writes))
        else:
            materializing = partial(open_materializer, runtime, f"{role}-leftovers", writes)
            await stack.enter_async_context(bringing_leftovers(runtime.database, writes, materializing))
        if wanted == "shadow":
            await stack.enter_async_context(open_shadow(runtime, role))
        events = await stack.enter_async_context(open_stream(settings, runtime.database, "events"))
        await stack.enter_async_context(relaying(runtime, events, meter=meter, writes=writes))
        changes = changes_of(runtime, role, writes, materializes=materializes)
        mode = await _taken(runtime, changes, wanted, said)
        await stack.enter_async_context(telling_losses(runtime, writes, lost or (lambda facts: None)))
        await stack.enter_async_context(watching(runtime, changes))
        if mode != "stream":
            yield None
            if wanted == "shadow":
                await _compared(runtime)
            return
        journal = Journal(journal_directory(settings))
        stack.callback(journal.close)
        facts = Facts(writes, way, journal, observe, runtime.ledger.checks)
        stack.push_async_callback(facts.close)
        yield facts
        await _drained(runtime, writes)


@asynccontextmanager
async def _without_stream(runtime: Runtime, lost: Count | None, beside: Sequence[Runtime]) -> AsyncIterator[None]:
    """Write to the ledger itself for the time of the block; while the way is another one, writes are refused."""
    if await runtime.ledger.way.steady(_CHANGE_SECONDS) == "stream":
        check_followed(runtime.settings)
    for one in (runtime, *beside):
        one.ledger.way.refusal = refusal_of(runtime.settings)
    await tell_noted(runtime)
    # Nobody needs to look for what other nodes recorded where nobody asks.
    async with watching(runtime), nullcontext() if lost is None else telling_losses(runtime, None, lost):
        yield


async def _taken(runtime: Runtime, changes: WritePathChange, wanted: Way | None, said: Callable[[str], None]) -> str:
    """Give the database the way that is wanted, or find out which one it has, and say what everybody should know of it."""
    way = runtime.ledger.way
    if wanted == "stream" or (wanted is None and way.mode == "stream"):
        StreamKeys(runtime.settings).signing()
    if wanted is None:
        if await way.steady(_CHANGE_SECONDS, changes.take_over) == "stream":
            check_followed(runtime.settings)
    else:
        was = way.mode
        await changes.to("stream" if wanted == "stream" else "ledger")
        if was != way.mode:
            said(f"the write path is now {way.mode} (was {was}), for every process of this database")
    if window := loss_window(runtime.settings, way.mode):
        said(window)
    return way.mode


def changes_of(runtime: Runtime, role: str, writes: EventStream, *, materializes: bool = True) -> WritePathChange:
    """Return what changes the write path for this process; one that does not materialize does so while it drains."""

    def materializing() -> AbstractAsyncContextManager[object]:
        return nullcontext() if materializes else open_materializer(runtime, f"{role}-change", writes)

    async def drain() -> None:
        async with materializing():
            await runtime.ledger.settled(_SETTLE_SECONDS)
            await drained(runtime.database, writes)

    return WritePathChange(
        runtime.database,
        runtime.ledger.way,
        drain,
        holder=holder_name(runtime, role),
        lease_seconds=runtime.settings.event_store.lease_seconds,
    )


@asynccontextmanager
async def open_materializer(
    runtime: Runtime, role: str, writes: EventStream, *, told: Told = lambda _: None, count: Count = lambda _: None
) -> AsyncIterator[Materializer]:
    """Write what was published into the ledger for the time of the block; `told` gets its shards, `count` its events."""
    notifier = Notifier(runtime.database)
    leases = shard_leases(runtime, "materializer", holder_name(runtime, role))
    materializer = Materializer(runtime.database, writes, leases.proof, notifier.touch, count)

    def changed(shards: frozenset[int]) -> None:
        materializer.hold(shards)
        told(shards)

    await leases.start(changed)
    trimming = asyncio.get_running_loop().create_task(_trim(runtime, leases, writes), name="noetl-trim")
    try:
        yield materializer
    finally:
        await ended(trimming)
        await materializer.stop()
        await leases.stop()
        await notifier.close()


@asynccontextmanager
async def open_shadow(runtime: Runtime, role: str, *, told: Told = lambda _: None) -> AsyncIterator[Shadow]:
    """Compare what a materializer would write with the ledger for the time of the block; `told` gets its shards."""
    async with open_stream(runtime.settings, runtime.database, "events") as events:
        leases = shard_leases(runtime, "shadow", holder_name(runtime, role))
        shadow = Shadow(runtime.database, events, leases.proof)
        await shadow.begin()

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


async def _drained(runtime: Runtime, writes: EventStream) -> None:
    """Let what waits come to the ledger before the relay of this process stops; another one would do it too."""
    try:
        await runtime.ledger.settled(_DRAIN_SECONDS)
        await drained(runtime.database, writes, _DRAIN_SECONDS)
    except NoetlError as problem:
        _log.warning("%s; the next process goes on with them", problem.message)


async def _compared(runtime: Runtime) -> None:
    """Let the shadow come to the end of what was written before the relay of this process stops."""
    try:
        found = await divergence(runtime.database, _DRAIN_SECONDS)
    except NoetlError as problem:
        _log.warning("the shadow did not compare all that was written: %s", problem.message)
        return
    if behind := sum(one.behind for one in found):
        _log.warning("the shadow has %d events to compare; the next process in `shadow` goes on with them", behind)


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
