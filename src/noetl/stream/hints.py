"""Small notes that processes leave for each other: lease hints, loop counters. A cache: gone at any time, never the truth.

Nothing here raises: whatever goes wrong is a miss, and the caller does what it would do without a hint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

KEPT_SECONDS = 3600.0
"""How long a note stays after it was last written."""


class Hints(Protocol):
    """Notes by key. A key is any text."""

    misses: int
    """How often a note was asked for and was not there."""
    errors: int
    """How often the store did not do what was asked; each of these is a miss to the caller."""

    async def get(self, key: str) -> bytes | None:
        """Return a note, or None when there is none or it cannot be had."""
        ...

    async def put(self, key: str, value: bytes) -> bool:
        """Leave a note over any earlier one; tell whether it was taken."""
        ...

    async def count(self, key: str, by: int = 1) -> int | None:
        """Add to a counter, which begins at 0, and return its sum; None when that could not be done.

        Each sum is returned once. A counter that vanished begins at 0 again, so a sum says "at least", never "exactly".
        """
        ...

    async def forget(self, key: str) -> None:
        """Remove a note."""
        ...


class MemoryHints:
    """Notes of one process."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.misses = 0
        self.errors = 0
        self._kept_seconds = kept_seconds
        self._clock = clock
        self._notes: dict[str, tuple[float, bytes]] = {}

    async def get(self, key: str) -> bytes | None:
        """Return a note."""
        found = self._found(key)
        self.misses += found is None
        return found

    async def put(self, key: str, value: bytes) -> bool:
        """Leave a note."""
        self._notes[key] = (self._clock() + self._kept_seconds, value)
        return True

    async def count(self, key: str, by: int = 1) -> int | None:
        """Add to a counter."""
        total = sum_of(self._found(key)) + by
        await self.put(key, str(total).encode())
        return total

    async def forget(self, key: str) -> None:
        """Remove a note."""
        self._notes.pop(key, None)

    def _found(self, key: str) -> bytes | None:
        until, value = self._notes.get(key, (0.0, b""))
        if until > self._clock():
            return value
        self._notes.pop(key, None)
        return None

    def wipe(self) -> None:
        """Lose everything, as any such store may."""
        self._notes.clear()


def sum_of(note: bytes | None) -> int:
    """Read a counter; what is no number counts as nothing."""
    try:
        return int(note or b"0")
    except ValueError:
        return 0
