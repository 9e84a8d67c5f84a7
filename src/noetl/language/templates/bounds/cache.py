"""What was made of texts, kept while it is used: as much of it as some characters of text made, however many texts these are.

What a text becomes takes memory by its length, so a number of texts bounds nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LEAST: Final = 100
"""A short text counts as one of so many characters: what is kept beside it has a size of its own."""


class KeptByLength(Generic[T]):
    """Values by key, together made of so many characters at most; the ones used longest ago go. Threads may share it."""

    def __init__(self, characters: int) -> None:
        self._most = characters
        self._found: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._guard = Lock()
        self.characters = 0
        """What all that is kept was made of."""

    def get(self, key: Hashable) -> T | None:
        """Return what is kept under a key, if anything is."""
        with self._guard:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: T, characters: int) -> T:
        """Keep a value that was made of so many characters, and return it; one of more than may be kept is not."""
        size = max(characters, _LEAST)
        with self._guard:
            before = self._found.pop(key, None)
            self.characters -= 0 if before is None else before[1]
            if size <= self._most:
                self._found[key] = value, size
                self.characters += size
            while self.characters > self._most:
                self.characters -= self._found.popitem(last=False)[1][1]
        return value
