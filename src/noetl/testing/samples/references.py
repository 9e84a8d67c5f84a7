"""References in memory, for tests of garbage collection: events are names, and appends are refused as the ledger would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from noetl.errors import Conflict, PayloadCollected
from noetl.model.stream import Scope

_Key = tuple[Scope, str]


class MemoryReferences:
    """Keeps which events refer to which payloads, and which payloads are condemned."""

    def __init__(self) -> None:
        self._referring: dict[_Key, list[str]] = defaultdict(list)
        self._marks: dict[_Key, str] = {}
        self._collecting: set[Scope] = set()

    def append(self, scope: Scope, sha256: str, event: str) -> None:
        """Record an event that refers to a payload; PayloadCollected if the payload is condemned."""
        if (scope, sha256) in self._marks:
            raise PayloadCollected(sha256=sha256)
        self._referring[scope, sha256].append(event)

    def forget(self, scope: Scope, sha256: str) -> None:
        """Drop all events that refer to a payload, as retention does."""
        self._referring.pop((scope, sha256), None)

    async def count(self, scope: Scope, sha256s: Sequence[str]) -> dict[str, int]:
        """Return how many events refer to each digest."""
        return {sha256: len(self._referring.get((scope, sha256), ())) for sha256 in sha256s}

    async def explain(self, scope: Scope, sha256: str) -> list[str]:
        """Name the events that refer to a digest."""
        return list(self._referring.get((scope, sha256), ()))

    @asynccontextmanager
    async def exclusively(self, scope: Scope) -> AsyncIterator[None]:
        """Hold the right to collect in a scope."""
        if scope in self._collecting:
            raise Conflict("another collector works on this organization")
        self._collecting.add(scope)
        try:
            yield
        finally:
            self._collecting.remove(scope)

    async def condemn(self, scope: Scope, sha256: str) -> bool:
        """Condemn a payload that no event refers to."""
        if self._referring.get((scope, sha256)):
            return False
        self._marks[scope, sha256] = "condemned"
        return True

    async def removed(self, scope: Scope, sha256: str) -> None:
        """Record that a condemned payload's object is deleted."""
        self._marks[scope, sha256] = "removed"

    async def spare(self, scope: Scope, sha256: str) -> None:
        """Lift the mark."""
        self._marks.pop((scope, sha256), None)

    async def condemned(self, scope: Scope) -> list[str]:
        """Return the digests that are condemned and not yet removed."""
        return [sha256 for (of, sha256), mark in self._marks.items() if of == scope and mark == "condemned"]
