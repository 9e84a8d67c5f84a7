"""Tier 1: bytes kept in this process, the least used of them forgotten first. Bounded by bytes, never by number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

_SHARE: Final = 8
"""What would take more than this part of the whole is not kept: it would push out everything else."""
_BESIDE: Final = 256
"""What an entry takes beside its bytes."""


class ByteLru:
    """Immutable bytes by key; safe between threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        """What it holds now."""

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, data: bytes) -> bool:
        """Keep bytes if there is room for their like; tell whether."""
        if (len(data) + _BESIDE) * _SHARE > self._limit:
            return False
        with self._lock:
            self._forget(key)
            self._kept[key] = data
            self.bytes += len(data) + _BESIDE
            while self.bytes > self._limit:
                self._forget(next(iter(self._kept)))
        return True

    def drop(self, key: str) -> None:
        """Forget a key."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: str) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self.bytes -= len(gone) + _BESIDE
