"""Stores by type: each projection is kept by one store, and readers of a type are sent to that store; views join
several.

Each store has its own checkpoints; it may be behind or ahead of the others, never mixed with them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from noetl.errors import ConfigError, InputError, NoetlError, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.projections.folds.execution import EXECUTION
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.port import Page, Snapshot, StoredRow
from noetl.kernel.projections.stores.postgres.store import PostgresProjectionStore
from noetl.kernel.projections.stores.postgres.view import PostgresView
from noetl.kernel.projections.stores.rows import check_query
from noetl.model.broken_stream import BrokenStream
from noetl.model.mark import Mark
from noetl.model.stream import Scope

DEFAULT: Final = "default"


@dataclass(frozen=True)
class StoreLine:
    """One store and the folds whose rows it has."""

    name: str
    store: PostgresProjectionStore
    folds: FoldRegistry

    @property
    def database(self) -> Database:
        """Where its rows, checkpoints and leases are."""
        return self.store.database

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of what it has."""
        return tuple(fold.projection for fold in self.folds.folds())


class StoredByType:
    """See `Projections` for the promises. Snapshots are the first store's, the ledger's own."""

    def __init__(self, lines: Sequence[StoreLine]) -> None:
        self.lines = tuple(lines)
        self._of = {projection: line for line in self.lines for projection in line.projections}

    def line_of(self, projection: str) -> StoreLine:
        """Return who has a projection; what nobody claims is asked of the first."""
        return self._of.get(projection, self.lines[0])

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard is projected, in every store."""
        return least([await line.store.checkpoints() for line in self.lines])

    async def others_at(self) -> dict[str, Mark]:
        """Return up to which positions each store beside the first has come, by its name."""
        found = {}
        for line in self.lines[1:]:
            with of_store(line.name):
                found[line.name] = await line.store.checkpoints()
        return found

    async def load_projections(self, keys: Sequence[RowKey]) -> list[FoldedRow]:
        """Return the stored rows among these, each from the store that has its projection."""
        found: list[FoldedRow] = []
        for line in self.lines:
            found += await line.store.load_projections([key for key in keys if self.line_of(key.projection) is line])
        return found

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Record a snapshot."""
        await self.lines[0].store.save_snapshot(snapshot)

    async def load_snapshots(
        self, scope: Scope, aggregate_type: str, aggregate_id: str, upto: int | None = None
    ) -> list[Snapshot]:
        """Return the snapshots at or before a version, the newest first."""
        return await self.lines[0].store.load_snapshots(scope, aggregate_type, aggregate_id, upto)

    async def prune_snapshots(self, scope: Scope, aggregate_type: str, aggregate_id: str, keep: int) -> None:
        """Forget all but the newest snapshots."""
        await self.lines[0].store.prune_snapshots(scope, aggregate_type, aggregate_id, keep)

    @asynccontextmanager
    async def snapshot_view(self, scope: Scope) -> AsyncIterator[StoresView]:
        """Give an organization's projections, those of each store as they are at one moment."""
        async with AsyncExitStack() as stack:
            views = {line.name: await stack.enter_async_context(line.store.snapshot_view(scope)) for line in self.lines}
            yield StoresView(views, lambda projection: self.line_of(projection).name)

    async def query(
        self, scope: Scope, projection: str, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncGenerator[StoredRow, None]:
        """Give the rows of a projection in an organization."""
        async with aclosing(self.line_of(projection).store.query(scope, projection, filters, page)) as rows:
            async for row in rows:
                yield row


class of_store:  # noqa: N801 - reads as a word in `with of_store(name):`
    """Says of errors in the block of which store they are; one that refuses connections counts as away."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._name != DEFAULT and isinstance(error, NoetlError):
            error.args = (f"projection store {self._name}: {error.message}",)
        elif self._name != DEFAULT and isinstance(error, asyncpg.PostgresError):
            raise Unavailable(f"projection store {self._name}: {error}") from error


def by_store(folds: FoldRegistry, wanted: Mapping[str, Sequence[str]]) -> dict[str, FoldRegistry]:
    """Divide folds among stores by the names that each wants; what nobody wants is the default store's."""
    taken: dict[str, str] = {}
    for store, names in wanted.items():
        setting = f"projection_stores.{store}.projections"
        for name in names:
            for projection in _named(folds, name, setting):
                if projection == EXECUTION.projection and store != DEFAULT:
                    raise ConfigError(
                        f"{setting}: {projection} stays in the default store, since lists and alerts join it with the catalog",
                        hint=f"name others: {_known(folds)}",
                    )
                if taken.setdefault(projection, store) != store:
                    raise ConfigError(f"{setting}: {projection} is kept by {taken[projection]}", hint="name it once")
    return {
        store: FoldRegistry(fold for fold in folds.folds() if taken.get(fold.projection, DEFAULT) == store)
        for store in (DEFAULT, *(name for name in wanted if name != DEFAULT))
    }


def _named(folds: FoldRegistry, name: str, setting: str) -> list[str]:
    try:
        return [fold.projection for fold in folds.select(name)]
    except InputError:
        raise ConfigError(
            f"{setting}: there is no projection {name!r}",
            hint=f"there are {_known(folds)}; your own are named in projections.business_objects",
        ) from None


def _known(folds: FoldRegistry) -> str:
    return ", ".join(fold.projection for fold in folds.folds() if fold.projection != EXECUTION.projection)


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
