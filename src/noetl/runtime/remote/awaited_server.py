"""Waiting for a server that a worker was started before: a first call goes in, and its end comes out, however long it takes.

Only a server that does not answer is waited for; whatever it refuses is an error at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from noetl.engine.dispatch.remote import pauses
from noetl.errors import Unavailable

TELL_SECONDS: Final = 300.0
"""How often somebody is told that nothing has changed."""


@dataclass(frozen=True)
class Waiting:
    """How to wait: under what, and whom to tell."""

    idle: Callable[[], AbstractContextManager[None]]
    """Entered while nothing but the wait is under way."""
    tell: Callable[[str], None]

    async def until_answered(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call again and again, with growing pauses, until the server answers."""
        clock = asyncio.get_running_loop().time
        told = -TELL_SECONDS
        with self.idle():
            for pause in pauses():
                try:
                    await call()
                    return
                except Unavailable as problem:
                    if clock() - told >= TELL_SECONDS:
                        self.tell(f"waiting: {problem.message}")
                        told = clock()
                    await asyncio.sleep(pause)
