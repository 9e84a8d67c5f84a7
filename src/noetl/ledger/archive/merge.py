"""Merges event iterators that are each ordered by position; holds one event of each and opens each when its turn comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from heapq import heapify, heappop, heappush

from noetl.model.event import Event


async def merged(sources: Sequence[tuple[int, AsyncGenerator[Event, None]]]) -> AsyncGenerator[Event, None]:
    """Give the events of one shard by position; each source comes with a bound that none of its events is below."""
    heap: list[tuple[int, int, Event | None]] = [(bound, number, None) for number, (bound, _) in enumerate(sources)]
    heapify(heap)
    try:
        while heap:
            _, number, event = heappop(heap)
            if event is not None:
                yield event
            following = await anext(sources[number][1], None)
            if following is not None:
                heappush(heap, (following.position, number, following))
    finally:
        for _, source in sources:
            await source.aclose()
