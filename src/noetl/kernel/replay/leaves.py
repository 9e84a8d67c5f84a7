"""Holds events against the leaves in the links of their shard, and remembers which positions had one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from noetl.kernel.ledger.chain.links import Link
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.normalizer import leaf_of
from noetl.model.event import Event, time_text

Runs = list[tuple[int, int]]
"""Positions that follow each other without a gap, first and last of each run."""
Tell = Callable[[Event, str, Any, Any], None]
"""Is told of an event, a field, what the chain says and what the event says."""


class LeafCheck:
    """Computes leaves again, and counts."""

    def __init__(self, trees: Trees, tell: Tell) -> None:
        self._trees = trees
        self._tell = tell
        self.events = self.before = 0

    async def check(self, shard: int, first: int, events: AsyncIterator[Event]) -> Runs:
        """Hold events of a shard, by position, against their leaves, and return the positions that were seen."""
        runs, links = Runs(), Following(self._trees, shard)
        async for event in events:
            _add(runs, event.position)
            if event.position < first:
                self.before += 1
                continue
            self.events += 1
            link = await links.at(event.position)
            if link is None:
                self._tell(event, "link", "one that covers it", None)
                continue
            if (said := leaf_of(event)) != (leaf := link.leaf(event.position)):
                self._tell(event, "leaf (SHA-256 of its columns)", leaf.hex(), said.hex())
            if (at := link.ingest_time(event.position)) != event.ingest_time:
                self._tell(event, "ingest_time", time_text(at), time_text(event.ingest_time))
            version = links.version(event.position)
            if version != event.stream_version:
                self._tell(event, "stream_version", version, event.stream_version)
        return runs


class Following:
    """The links of a shard, found for positions that come in order."""

    def __init__(self, trees: Trees, shard: int) -> None:
        self._pages: AsyncIterator[list[Link]] | None = None
        self._trees = trees
        self._shard = shard
        self._page: list[Link] = []
        self._link: Link | None = None
        self._versions: list[int] = []

    async def at(self, position: int) -> Link | None:
        """Return the link that holds a position."""
        while self._link is None or self._link.last_position < position:
            if self._pages is None:
                self._pages = self._trees.links.links(self._shard, position)
            while not self._page:
                found = await anext(self._pages, None)
                if found is None:
                    return None
                self._page = found
            self._link = self._page.pop(0)
            self._versions = list(self._link.stream_versions())
        return self._link if self._link.first_position <= position else None

    def version(self, position: int) -> int | None:
        """Return the stream version that the link says of a position it holds."""
        if self._link is None:
            return None
        place = position - self._link.first_position
        return self._versions[place] if 0 <= place < len(self._versions) else None


def gaps(runs: Runs, end: int) -> Runs:
    """Return the positions from 1 to an end that are in none of the runs, which may overlap."""
    found, position = Runs(), 1
    for first, last in [*sorted(runs), (end + 1, end + 1)]:
        if first > position:
            found.append((position, min(first - 1, end)))
        position = max(position, last + 1)
    return [(first, last) for first, last in found if first <= last]


def _add(runs: Runs, position: int) -> None:
    if runs and runs[-1][0] <= position <= runs[-1][1] + 1:
        runs[-1] = (runs[-1][0], max(runs[-1][1], position))
    else:
        runs.append((position, position))
