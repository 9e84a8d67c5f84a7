"""Small notes that processes leave for each other: that leases moved, how far loops are. A cache: gone at any time, never the truth.

Nothing here raises: whatever goes wrong is a miss, and the caller does what it would do without a hint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

KEPT_SECONDS = 3600.0
"""How long a note stays after it was last written."""

Make = Callable[[bytes | None], bytes]
"""Makes a note of what it said before; None where there was none."""


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

    async def change(self, key: str, make: Make) -> bytes | None:
        """Leave what is made of a note in its place and return it; None when that could not be done.

        Of several who change a note at once each makes something of what the one before left; `make` may be called again.
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

    async def change(self, key: str, make: Make) -> bytes | None:
        """Leave what is made of a note."""
        made = make(self._found(key))
        await self.put(key, made)
        return made

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


async def count(hints: Hints, key: str, by: int = 1, *, begin: int = 0) -> int | None:
    """Add to a counter, which begins at `begin`, and return its sum; None when that could not be done.

    Each sum is returned once. A counter that vanished begins anew, so a sum says "at least", never "exactly".
    """
    made = await hints.change(key, lambda before: str((begin if before is None else sum_of(before)) + by).encode())
    return None if made is None else sum_of(made)


def sum_of(note: bytes | None) -> int:
    """Read a counter; what is no number counts as nothing."""
    try:
        return int(note or b"0")
    except ValueError:
        return 0
