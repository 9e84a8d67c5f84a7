"""What is done outside once the end of a step is recorded, such as acknowledging messages: tasks add to it, the worker does it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from noetl.execute.tools.port import Settle

SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


class Settling:
    """What the tasks of one command left to be settled; each is told once whether what it came to is recorded."""

    def __init__(self) -> None:
        self._left: list[Settle] = []

    def add(self, settle: Settle) -> None:
        """Have something settled after the end of the step."""
        self._left.append(settle)

    async def settle(self, *, recorded: bool) -> None:
        """Tell everybody who has not been told; what fails then is left as if nothing was recorded."""
        while self._left:
            settle = self._left.pop()
            try:
                async with asyncio.timeout(SECONDS):
                    await asyncio.shield(settle(recorded=recorded))
            except Exception as problem:
                # Not its words: those of a client may quote an address with a password in it.
                _log.warning("what a step took could not be settled, and may come again: %s", type(problem).__name__)
