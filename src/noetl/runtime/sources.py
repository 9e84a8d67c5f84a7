"""Sources of one process, connected to its runtime: the keeper of those that are to run always."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.dispatch.sources.keeper import SourceKeeper
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.wiring import Runtime


@asynccontextmanager
async def open_sources(runtime: Runtime, pipelines: Pipelines) -> AsyncIterator[SourceKeeper]:
    """Keep always-on sources running for the time of the block; at its end no new turn is begun."""
    every = runtime.settings.sources.look_seconds
    keeper = SourceKeeper(runtime.database, pipelines.engine, every_seconds=every)
    keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()
