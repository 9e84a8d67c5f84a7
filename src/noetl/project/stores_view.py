"""Views of several stores as one: each store's rows in its order go in, those of the types it has come out in one order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from noetl.model.broken_stream import BrokenStream
from noetl.model.mark import Mark
from noetl.project.port import Page, StoredRow
from noetl.project.postgres_view import PostgresView
from noetl.project.rows import check_query


class StoresView:
    """See `ProjectionView` for the promises; checkpoints are those that every store has reached."""

    def __init__(self, views: Mapping[str, PostgresView], store_of: Callable[[str], str]) -> None:
        self._views = views
        self._store_of = store_of

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard was projected in every store."""
        return least([await view.checkpoints() for view in self._views.values()])

    async def broken_streams(self) -> list[BrokenStream]:
        """Return the streams that stood still in any store, where they first did."""
        found = [broken for view in self._views.values() for broken in await view.broken_streams()]
        first = {broken.stream: broken for broken in sorted(found, key=lambda one: one.position, reverse=True)}
        return sorted(first.values(), key=lambda one: (one.shard, one.position))

    async def query(
        self, projection: str | None = None, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncGenerator[StoredRow, None]:
        """Give rows by projection and row id; a type that a store has no more is not its to show."""
        check_query(projection, filters, page)
        if projection is not None:
            async with aclosing(self._views[self._store_of(projection)].query(projection, filters, page)) as rows:
                async for row in rows:
                    yield row
            return
        async with AsyncExitStack() as stack:
            waiting: dict[str, StoredRow] = {}
            streams = {
                name: await stack.enter_async_context(aclosing(self._own(name, filters))) for name in self._views
            }
            for name, stream in streams.items():
                await _advance(waiting, name, stream)
            while waiting:
                name = min(waiting, key=lambda one: _place(waiting[one]))
                yield waiting.pop(name)
                await _advance(waiting, name, streams[name])

    async def _own(self, name: str, filters: Mapping[str, Any] | None) -> AsyncGenerator[StoredRow, None]:
        async with aclosing(self._views[name].query(None, filters)) as rows:
            async for row in rows:
                if self._store_of(row.folded.key.projection) == name:
                    yield row


def least(marks: Sequence[Mark]) -> Mark:
    """Return the mark that all of these cover."""
    return Mark([min(positions) for positions in zip(*(mark.positions for mark in marks), strict=True)])


async def _advance(waiting: dict[str, StoredRow], name: str, stream: AsyncGenerator[StoredRow, None]) -> None:
    following = await anext(stream, None)
    if following is not None:
        waiting[name] = following


def _place(row: StoredRow) -> tuple[bytes, bytes]:
    return row.folded.key.projection.encode(), row.folded.key.row_id.encode()
