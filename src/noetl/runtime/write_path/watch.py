"""Watches the write path for a process: it learns of changes by others and tells them, and ends one whose process died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.write_path import WritePathChange
from noetl.kernel.stream.cancellation import ended
from noetl.runtime.wiring import Runtime
from noetl.runtime.write_path.choice import loss_window

_log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 1.0


@asynccontextmanager
async def watching(runtime: Runtime, changes: WritePathChange | None = None) -> AsyncIterator[None]:
    """Look once a second for the time of the block, also where nothing is appended; without `changes`, end none."""
    watch = _Watch(runtime, changes, await runtime.ledger.way.known())
    task = asyncio.get_running_loop().create_task(watch.go_on(), name="noetl-write-path")
    try:
        yield
    finally:
        await ended(task)


class _Watch:
    def __init__(self, runtime: Runtime, changes: WritePathChange | None, mode: str) -> None:
        self._settings = runtime.settings
        self._way = runtime.ledger.way
        self._changes = changes
        self._was = mode

    async def go_on(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                mode = await self._way.look()
                if mode == "draining":
                    await self._take_over()
                elif mode != self._was:
                    self._tell(mode)
                    self._was = mode
            except NoetlError:
                _log.debug("the write path could not be looked at", exc_info=True)

    async def _take_over(self) -> None:
        if self._changes is None:
            return
        try:
            led_to = await self._changes.take_over()
        except NoetlError as problem:
            _log.warning("a change of the write path, left by a process that died, was put back: %s", problem.message)
        else:
            if led_to is not None:
                _log.warning("a change of the write path to %s, left by a process that died, was ended here", led_to)

    def _tell(self, mode: str) -> None:
        window = loss_window(self._settings, mode)
        _log.warning(
            "the write path is now %s (was %s); this process is set to %s%s",
            mode, self._was, self._settings.event_store.write_path, f"; {window}" if window else "",
        )  # fmt: skip
        if mode == "stream" and self._way.refusal is not None:
            refusal = self._way.refusal()
            _log.error("%s; it refuses to write until that changes: %s", refusal.message, refusal.hint)
