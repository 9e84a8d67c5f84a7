"""Watches the write path for a process: it learns of changes by others, and ends one whose process died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from noetl.errors import NoetlError
from noetl.ledger.write_path import WritePath
from noetl.ledger.write_path_change import WritePathChange

_log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 1.0


@asynccontextmanager
async def watching(way: WritePath, changes: WritePathChange) -> AsyncIterator[None]:
    """Look once a second for the time of the block, also where nothing is appended."""
    task = asyncio.get_running_loop().create_task(_watch(way, changes), name="noetl-write-path")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(way: WritePath, changes: WritePathChange) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            if await way.look() == "draining":
                await _take_over(changes)
        except NoetlError:
            _log.debug("the write path could not be looked at", exc_info=True)


async def _take_over(changes: WritePathChange) -> None:
    try:
        ended = await changes.take_over()
    except NoetlError as problem:
        _log.warning("a change of the write path, left by a process that died, was put back: %s", problem.message)
    else:
        if ended is not None:
            _log.warning("a change of the write path to %s, left by a process that died, was ended here", ended)
