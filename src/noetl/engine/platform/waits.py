"""Tells errors of the platform from errors of the work, and waits until the platform answers.

Only calls of the platform's own parts are made through here, so what they raise of these kinds is the platform's. What a
user's code or a user's server raises never comes this way, and stays the work's error.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeVar

from noetl.errors import FramesOpen, NoetlError, OutsideUnavailable, PayloadCollected, Unavailable

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
TOLD_AFTER_SECONDS: Final = 1.0
"""How long a part may be away before it is told: what passes sooner is not worth an event."""

Tell = Callable[[str, str | None], Awaitable[None]]
"""Tells that a part is away, and why; without a reason, that it answers again."""


def platform_problem(error: BaseException) -> str | None:
    """Return what is wrong with the platform, in words that may be shown; None where the error is none of its own."""
    if isinstance(error, FramesOpen | OutsideUnavailable):
        return None  # one passes only when somebody takes those frames, the other is a user's server
    if isinstance(error, Unavailable | PayloadCollected):
        return error.message
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return None


class Waits:
    """How one command waits."""

    def __init__(
        self, tell: Tell, sleep: Callable[[float], Awaitable[None]], waiting: Callable[[], None] = lambda: None
    ) -> None:
        self._tell = tell
        self._sleep = sleep
        self._waiting = waiting
        self._told: dict[str, int] = {}
        self.now = 0
        """How many calls wait at present."""

    async def answered(self, part: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call again and again until the part of the platform it needs answers."""
        try:
            return await call()
        except Exception as error:
            if (reason := platform_problem(error)) is None:
                raise
        self.now += 1
        self._waiting()
        try:
            return await self._again(part, call, reason)
        finally:
            self.now -= 1

    async def _again(self, part: str, call: Callable[[], Awaitable[T]], reason: str) -> T:
        told, waited, pause = False, 0.0, FIRST_PAUSE
        try:
            while True:
                # Spread, so that those who lost it together do not come back together.
                seconds = pause * random.uniform(0.5, 1.0)  # noqa: S311
                await self._sleep(seconds)
                waited, pause = waited + seconds, min(LONGEST_PAUSE, pause * 2)
                if not told and waited >= TOLD_AFTER_SECONDS:
                    told = await self._say(part, reason)
                try:
                    answer = await call()
                except Exception as error:
                    if (again := platform_problem(error)) is None:
                        if told:  # a refusal is an answer, too
                            told = False
                            await self._say_over(part)
                        raise
                    reason = again
                else:
                    if told:
                        told = False
                        await self._say_over(part)
                    return answer
        finally:
            if told:
                self._told[part] -= 1

    async def _say(self, part: str, reason: str) -> bool:
        """Tell that a part is away, once for all calls that wait for it; False if nobody could be told."""
        if not self._told.get(part):
            try:
                await self._tell(part, reason)
            except NoetlError:
                return False
        self._told[part] = self._told.get(part, 0) + 1
        return True

    async def _say_over(self, part: str) -> None:
        self._told[part] -= 1
        if not self._told[part]:
            with suppress(NoetlError):
                await self._tell(part, None)


_CURRENT: ContextVar[Waits | None] = ContextVar("noetl-platform-waits", default=None)


@contextmanager
def waiting_by(waits: Waits) -> Iterator[None]:
    """Let calls of the platform within the block, and in tasks begun in it, be waited for this way."""
    before = _CURRENT.set(waits)
    try:
        yield
    finally:
        _CURRENT.reset(before)


async def answered(part: str, call: Callable[[], Awaitable[T]]) -> T:
    """Make a call of a part of the platform; within a command it is made again until the part answers."""
    waits = _CURRENT.get()
    if waits is None:
        return await call()
    return await waits.answered(part, call)
