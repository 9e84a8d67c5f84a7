"""The role `materializer`: writes what the stream acknowledged into the ledger, or compares it there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from noetl.runtime.config import load_settings
from noetl.runtime.metrics.roles import open_materializer_metrics
from noetl.runtime.service import run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path.leftovers import bringing_leftovers
from noetl.runtime.write_path.message_keys import StreamKeys
from noetl.runtime.write_path.movers import changes_of, open_materializer, open_shadow
from noetl.runtime.write_path.watch import watching


def run_materializer(tell: Callable[[str], None]) -> int:
    """Materialize until a signal ends the process, or compare in the write path `shadow`."""
    settings = load_settings()
    return run_role(lambda stopping: _running(settings, tell), tell)


@asynccontextmanager
async def _running(settings: Settings, tell: Callable[[str], None]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings, "materializer"))
        metrics, counts = await stack.enter_async_context(open_materializer_metrics(runtime, tell))
        writes = await stack.enter_async_context(open_stream(settings, runtime.database, "writes", counts.refused))
        if settings.event_store.write_path == "shadow":
            left = partial(open_materializer, runtime, "leftovers", writes, count=counts.written)
            await stack.enter_async_context(bringing_leftovers(runtime.database, writes, left))
            await stack.enter_async_context(open_shadow(runtime, "materializer", told=metrics.hold))
            tell("comparing what would be written")
        else:
            StreamKeys(settings).signing()
            own = open_materializer(runtime, "materializer", writes, told=metrics.hold, count=counts.written)
            await stack.enter_async_context(own)
            changes = changes_of(runtime, "materializer", writes)
            await stack.enter_async_context(watching(runtime, changes))
            tell("materializing")
        yield
