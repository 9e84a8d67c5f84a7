"""A ledger that is only read: events that have their positions already go in, and are given like those of a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope, execution_stream


class FrozenLedger:
    """Reads a history that is in memory, in pages and one by one; see `Ledger` and `EventPages` for the promises."""

    def __init__(self, events: Iterable[Event], page: int = 7) -> None:
        """Take the events; pages are small, so that even short histories have several."""
        self._shards: list[list[Event]] = [[] for _ in range(SHARD_COUNT)]
        for event in sorted(events, key=lambda event: event.position):
            self._shards[event.shard].append(event)
        self._page = page

    async def head(self) -> Mark:
        """Return the last position of each shard."""
        return Mark([events[-1].position if events else 0 for events in self._shards])

    async def execution_pages(
        self, scope: Scope, execution_id: int, from_position: int = 1, *, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of an execution."""
        shard = execution_stream(scope, execution_id).shard
        async for page in self.shard_pages(shard, from_position, scope=scope, to_position=to_position):
            own = [event for event in page if event.execution_id == execution_id]
            if own:
                yield own

    async def shard_pages(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard."""
        events = [
            event
            for event in self._shards[shard]
            if from_position <= event.position
            and (to_position is None or event.position <= to_position)
            and (scope is None or event.stream.scope == scope)
        ]
        for start in range(0, len(events), self._page):
            yield events[start : start + self._page]

    async def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard one by one."""
        async for page in self.shard_pages(shard, from_position, scope=scope, to_position=to_position):
            for event in page:
                yield event
