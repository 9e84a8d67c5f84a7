"""Guessing of tokens: where a bad token came from goes in, and how long its answer has to wait comes out.

An address that shows one bad token after another is answered ever more slowly. A good token from the same address is answered
at once: every token is looked up, only refusals wait. Showing the same bad token again is a mistake, not a guess.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from noetl.api.problems import TooMany, Unauthenticated

_log = logging.getLogger(__name__)

FREE: Final = 10
"""So many different bad tokens of an address are refused at once."""
MOST_SECONDS: Final = 8.0
FORGET_SECONDS: Final = 600.0
MOST_WAITING: Final = 500
"""So many refusals wait at a time; the others are given at once, for waiting takes memory."""
_FIRST_SECONDS: Final = 0.25
_KEPT_TOKENS: Final = 16
_MOST_ADDRESSES: Final = 10_000
_LOG_SECONDS: Final = 60.0


@dataclass
class _Guesses:
    count: int = 0
    last: float = 0.0
    told: float = float("-inf")
    tokens: deque[bytes] = field(default_factory=lambda: deque(maxlen=_KEPT_TOKENS))


class RefusedTokens:
    """The bad tokens that one server was shown, by address."""

    def __init__(
        self,
        count: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._count = count
        self._clock = clock
        self._wait = wait
        self._waiting = 0
        self._addresses: OrderedDict[str, _Guesses] = OrderedDict()

    async def refused(self, address: str, key: bytes, problem: Unauthenticated) -> Exception:
        """Return how to answer a bad token, known by its digest, after the wait that its address has earned."""
        self._count()
        seconds = self._noted(address, key)
        if seconds <= 0:
            return problem
        if self._waiting < MOST_WAITING:
            self._waiting += 1
            try:
                await self._wait(seconds)
            finally:
                self._waiting -= 1
        return TooMany(
            f"{problem.message}, and too many such tokens came from this address",
            hint=problem.hint,
            retry_after=math.ceil(seconds),
        )

    def _noted(self, address: str, key: bytes) -> float:
        """Count a guess and return how long its answer waits."""
        now = self._clock()
        found = self._addresses.pop(address, None)
        if found is None or now - found.last > FORGET_SECONDS:
            found = _Guesses()
        self._addresses[address] = found
        while len(self._addresses) > _MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        if key in found.tokens:
            return 0.0
        found.tokens.append(key)
        found.count += 1
        found.last = now
        over = found.count - FREE
        if over <= 0:
            return 0.0
        if now - found.told >= _LOG_SECONDS:
            found.told = now
            _log.warning(
                "%d different bad tokens came from %s, which is answered more slowly now", found.count, address
            )
        return min(MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(over - 1, 10))
