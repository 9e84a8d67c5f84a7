"""Events in pages: what replay reads, a page ahead of the fold, so that the server works while the fold does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol, TypeVar

from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope

T = TypeVar("T")


class EventPages(Protocol):
    """A ledger that is read in pages, each in order, none of them empty."""

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        ...

    def execution_pages(
        self, scope: Scope, execution_id: int, from_position: int = 1, *, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of an execution by position, both bounds included."""
        ...

    def shard_pages(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard by position, both bounds included, of one organization or of all."""
        ...


async def ahead(pages: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Give what the iterator gives, fetching the next while the present one is worked on."""
    source = aiter(pages)
    following = asyncio.ensure_future(_following(source))
    try:
        while (page := await following) is not None:
            following = asyncio.ensure_future(_following(source))
            yield page
    finally:
        # A reader that stops early must not leave a query running on a connection that goes back to its pool.
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        if isinstance(source, AsyncGenerator):
            await source.aclose()


async def _following(source: AsyncIterator[T]) -> T | None:
    return await anext(source, None)


def reading(pages: AsyncIterator[T]) -> aclosing[AsyncGenerator[T, None]]:
    """Open an iterator of pages for a block that reads it one page ahead and closes it, read to its end or not."""
    return aclosing(ahead(pages))
