"""Durable readers of the stream of events: which of them live, and forgetting those that are gone for good.

A reader lives by the lease or heartbeat of its process, or by waiting for messages at the stream; it is never forgotten then.
"""

from __future__ import annotations

from collections.abc import Sequence

from noetl.errors import ConfigError, Conflict, NoetlError, NotFound
from noetl.kernel.leases.shards import holders, living
from noetl.kernel.projections.stores.by_type import DEFAULT
from noetl.kernel.stream.port import EventStream
from noetl.kernel.stream.relay.progress import Reader, readers_behind
from noetl.runtime.projections.lines import line_durable
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import mirrors, open_stream
from noetl.runtime.wiring import Runtime


def check_readers(settings: Settings) -> None:
    """Refuse settings without a stream that has durable readers."""
    if not mirrors(settings):
        raise ConfigError(
            f"event_store.distribution_backend is {settings.event_store.distribution_backend}: there are no durable readers "
            "to forget",
            hint="set it to nats-jetstream, and event_store.connection.url to the server",
        )


async def forget_readers(runtime: Runtime, names: Sequence[str]) -> list[Reader]:
    """Remove durable readers with their places in the stream; return how far each was. All of them go, or none."""
    async with open_stream(runtime.settings, runtime.database, "events") as stream:
        await stream.state()  # says `NotFound` when the stream is what is missing
        known = {one.durable: one for one in readers_behind(await stream.lags(), {})}
        _check_known(stream, names, sorted(known))
        alive = await living_readers(runtime, stream)
        for name in names:
            if name in alive:
                raise Conflict(
                    f"{name} is not forgotten: {alive[name]}",
                    hint="stop that process first; one that was killed counts as alive until its lease is over",
                )
        for name in dict.fromkeys(names):
            await stream.forget(name)
    return [known[name] for name in dict.fromkeys(names)]


async def living_readers(runtime: Runtime, stream: EventStream) -> dict[str, str]:
    """Return the durables that somebody reads, each with what says so."""
    found = dict.fromkeys(await stream.readers(), "somebody waits for its messages now")
    for held in await holders(runtime.database):
        if held.role == "shadow":
            found[f"shadow-{held.shard}"] = f"{held.holder} compares shard {held.shard} by it"
    lease = runtime.settings.projections.lease_seconds
    for line in runtime.projections.lines:
        try:
            names = await living(line.database, "projector", lease)
        except NoetlError:
            if line.name == DEFAULT:
                raise
            continue  # a store that is away has its readers told of by the stream
        found |= {line_durable(name, line): f"the projector {name} lives" for name in names}
    return found


def _check_known(stream: EventStream, names: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in names if name not in known]
    if missing:
        raise NotFound(
            f"the stream {stream.name} has no reader {', '.join(missing)}",
            hint=f"its readers are {', '.join(known)}" if known else "it has no readers at all",
        )
