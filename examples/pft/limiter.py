"""Counts requests in a sliding window of one second and says no to those above the limit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from examples.pft.http_server import Answer

TOO_MANY = Answer({"detail": "too many requests"}, 429, (("Retry-After", "1"),))


class Limiter:
    """At most `per_second` requests in any second; 0 lets everything through."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._seen: deque[float] = deque()

    def admits(self) -> bool:
        """Count a request and say whether it may pass; one that may not is not counted."""
        if not self._per_second:
            return True
        now, seen = self._clock(), self._seen
        while seen and seen[0] <= now - 1.0:
            seen.popleft()
        if len(seen) >= self._per_second:
            return False
        seen.append(now)
        return True
