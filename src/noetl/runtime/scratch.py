"""A worker's scratch place for the time of a block: what it keeps for executions goes soon after they have ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.engine.dispatch.port import Dispatch
from noetl.engine.tools.resources import Scratch, WorkerResources, keep_scratch
from noetl.errors import NoetlError
from noetl.kernel.stream.cancellation import ended
from noetl.runtime.settings.declaration import Settings

_log = logging.getLogger(__name__)

SWEEP_SECONDS = 15.0
"""How often a worker that keeps something asks whether it still has to."""


@asynccontextmanager
async def kept_scratch(resources: WorkerResources, settings: Settings, dispatch: Dispatch) -> AsyncIterator[None]:
    """Give a worker's tools a scratch place; all of it is removed when the resources are closed."""
    scratch = await keep_scratch(resources, settings.cache_directory / "scratch")
    sweeping = asyncio.get_running_loop().create_task(_sweep(scratch, dispatch), name="noetl-scratch")
    try:
        yield
    finally:
        await ended(sweeping)


async def _sweep(scratch: Scratch, dispatch: Dispatch) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            await sweep(scratch, dispatch)
        except Exception as problem:
            # Whatever it was, a worker that no longer asks would fill its disk.
            expected = isinstance(problem, NoetlError)
            _log.warning("nobody could say which executions have ended: %s", problem, exc_info=not expected)


async def sweep(scratch: Scratch, dispatch: Dispatch) -> None:
    """Remove what is kept for executions that have ended."""
    held = scratch.held()
    if held:
        await scratch.drop(await dispatch.ended(held))
