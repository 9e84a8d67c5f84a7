"""`noetl materializer`: writes what the stream acknowledged into the ledger, or compares it there, until told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings


@click.command()
@click.pass_context
def materializer(ctx: click.Context) -> None:
    """Write published events into the ledger, sharing the shards with other materializers, until SIGTERM or Ctrl-C.

    In the write path `stream` materializers are the only writers of the ledger. In `shadow` they write nothing: they make
    each row and compare it with the one that stands, which `noetl stream divergence` shows.

    \b
    Examples:
      NOETL_EVENT_STORE__WRITE_PATH=stream noetl materializer
      NOETL_EVENT_STORE__WRITE_PATH=shadow noetl materializer
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return _running(settings)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[None]:
    from noetl.runtime.leftovers import bringing_leftovers
    from noetl.runtime.role_metrics import open_materializer_metrics
    from noetl.runtime.streams import open_stream
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path import changes_of, open_materializer, open_shadow
    from noetl.runtime.write_path_watch import watching

    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings, "materializer"))
        metrics, counts = await stack.enter_async_context(open_materializer_metrics(runtime, tell))
        writes = await stack.enter_async_context(open_stream(settings, runtime.database, "writes"))
        if settings.event_store.write_path == "shadow":
            left = partial(open_materializer, runtime, "leftovers", writes, count=counts.written)
            await stack.enter_async_context(bringing_leftovers(runtime.database, writes, left))
            await stack.enter_async_context(open_shadow(runtime, "materializer", told=metrics.hold))
            tell("comparing what would be written")
        else:
            own = open_materializer(runtime, "materializer", writes, told=metrics.hold, count=counts.written)
            await stack.enter_async_context(own)
            changes = changes_of(runtime, "materializer", writes)
            await stack.enter_async_context(watching(runtime, changes))
            tell("materializing")
        yield
