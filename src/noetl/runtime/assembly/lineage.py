"""What tells other systems about tasks, connected: settings go in, an emitter comes out, or one that runs by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from noetl.errors import InputError
from noetl.pipelines.datasets.lineage import LineageReader
from noetl.runtime.assembly.pipelines import lake_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime
from noetl.services.openlineage.transports import FileTransport, HttpTransport, Transport

if TYPE_CHECKING:
    from noetl.services.openlineage.emitter import Emitter


@asynccontextmanager
async def open_emitter(runtime: Runtime) -> AsyncIterator[Emitter]:
    """Give what sends events of the settings' organization for the time of the block."""
    # The client of OpenLineage takes a second to import, and most servers tell nobody.
    from noetl.services.openlineage.emitter import Emitter
    from noetl.services.openlineage.fact_reader import Gathering

    transport = transport_of(runtime.settings)
    if transport is None:
        raise InputError(
            "nobody is to be told about tasks: openlineage.transport is none", hint="set it to file or http"
        )
    reader = LineageReader(runtime.scope, runtime.database, runtime.payloads, runtime.history)
    gathering = Gathering(runtime.scope, runtime.database, reader, lake_of(runtime.settings).root)
    try:
        yield Emitter(runtime.scope, runtime.database, runtime.history, gathering, transport)
    finally:
        await transport.close()


@asynccontextmanager
async def open_lineage(runtime: Runtime) -> AsyncIterator[None]:
    """Send events in the background for the time of the block, if the settings say where to."""
    if runtime.settings.openlineage.transport == "none":
        yield
        return
    async with open_emitter(runtime) as emitter:
        every = runtime.settings.openlineage.every_seconds
        following = asyncio.create_task(emitter.follow(every), name="noetl-openlineage")
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following


def transport_of(settings: Settings) -> Transport | None:
    """Return how events are sent; None if they are not."""
    own = settings.openlineage
    if own.transport == "none":
        return None
    if own.transport == "file":
        return FileTransport(own.path or settings.runtime.home / "openlineage.jsonl")
    if own.url is None:
        raise InputError("openlineage.transport is http, and openlineage.url is not set")
    return HttpTransport(own.url.get_secret_value(), None if own.token is None else own.token.get_secret_value())
