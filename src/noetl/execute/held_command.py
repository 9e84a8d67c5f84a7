"""A command under its lease: what stops the work on it, and what it has told of the platform it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noetl.dispatch.grants import CommandGrant
from noetl.dispatch.port import Dispatch
from noetl.execute.platform.waits import Waits


class HeldCommand:
    """Held by the task that makes it."""

    def __init__(
        self,
        grant: CommandGrant,
        dispatch: Dispatch,
        sleep: Callable[[float], Awaitable[None]],
        stops: Callable[[], bool],
    ) -> None:
        working = asyncio.current_task()
        assert working is not None
        self._working = working
        self._grant = grant
        self._dispatch = dispatch
        self._stops = stops
        self._told = 0
        self.is_lost = False
        """Whether somebody else has it now."""
        self.is_reported = False
        """Whether its end was sent: its row is gone then, and the answer may hand over the next command."""
        self.is_returned = False
        """Whether its work was stopped for another worker to go on with."""
        self.waits = Waits(self._tell, sleep, self.let_go_if_stopping)

    def lose(self) -> None:
        """Stop its work, for it is ours no longer."""
        if not self.is_reported:
            self.is_lost = True
            self._working.cancel()

    def let_go_if_stopping(self) -> None:
        """Stop work that only waits for the platform, if the worker is to stop: others may wait for it as well."""
        if self._stops() and self.waits.now and not self.is_returned:
            self.is_returned = True
            self._working.cancel()

    def goes_on(self) -> bool:
        """Tell, after a cancellation, whether it was only meant for this command; its task then goes on with others."""
        if not self.is_lost and not self.is_returned:
            return False
        self._working.uncancel()
        return True

    async def _tell(self, part: str, reason: str | None) -> None:
        self._told += 1
        await self._dispatch.stalled(self._grant, part, reason, self._told)
