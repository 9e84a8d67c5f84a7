"""Builds projections anew from the whole history, shard by shard, in memory bounded by what is open at one time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from noetl.errors import HistoryNotKept
from noetl.kernel.payloads.fields import Erasures, FieldsReader, nothing_erased
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.fold import Fold, FoldedRow
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.stores.port import ProjectionStore, Replaced, Replacement
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope

CHUNK = 5_000
"""Events folded between two writes, and rows written at once."""


class History(Protocol):
    """Where all events can be read, archived ones too; a ledger will do if nothing was archived."""

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        ...

    def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard by position."""
        ...


class ShardRebuilt(msgspec.Struct, frozen=True):
    """What the rebuild of one shard found."""

    shard: int
    events: int
    rows: Replaced


class RebuildReport(msgspec.Struct, frozen=True):
    """What a rebuild found, in the order of the shards."""

    shards: list[ShardRebuilt]

    @property
    def changed(self) -> int:
        """How many rows were not as the ledger says."""
        return sum(each.rows.changed + each.rows.added + each.rows.removed for each in self.shards)


Progress = Callable[[int, int, int], None]
"""Is told a shard, the position reached and the position to reach."""


async def rebuild(
    history: History,
    store: ProjectionStore,
    folds: FoldRegistry,
    upcasters: Upcasters,
    *,
    shards: Sequence[int] | None = None,
    progress: Progress | None = None,
    payloads: PayloadStore | None = None,
    erasures: Erasures = nothing_erased,
) -> RebuildReport:
    """Fold shards from their first event and put the result in place of their rows; each shard whole or not at all.

    Whoever projects a shard waits while it is rebuilt, and then goes on from there. Readers see the old rows until then.
    Streams whose fields cannot be read stand still where that is; without payloads an event that needs them is refused.
    """
    chosen = range(SHARD_COUNT) if shards is None else shards
    return RebuildReport(
        [
            await _rebuild_shard(
                history, store, folds.folds(), upcasters, shard, progress, FieldsReader(payloads, erasures)
            )
            for shard in chosen
        ]
    )


async def _rebuild_shard(
    history: History,
    store: ProjectionStore,
    folds: Sequence[Fold],
    upcasters: Upcasters,
    shard: int,
    progress: Progress | None,
    fields: FieldsReader,
) -> ShardRebuilt:
    async with store.replacing(shard) as replacement:
        # Read only now that no projector moves on: the shard must not fall behind what readers saw.
        upto = (await history.head()).positions[shard]
        ended: list[FoldedRow] = []
        state = FoldState(folds, upcasters=upcasters, on_ended=ended.append)
        folded = 0
        async for event in history.read_shard(shard, 1, to_position=upto):
            if event.position != folded + 1:
                break
            state.apply_many(await fields.read([event]) if fields.has_work(event) else [event])
            folded = event.position
            if not folded % CHUNK:
                await replacement.put(ended)
                ended.clear()
                if progress is not None:
                    progress(shard, event.position, upto)
        if folded < upto:
            raise HistoryNotKept(
                f"the event at position {folded + 1} of shard {shard} is not in the history, whose head is {upto}; "
                "the shard stays as it was"
            )
        await replacement.put(ended)
        await _put_open_rows(state, folds, replacement)
        versions = {fold.projection: fold.version for fold in folds}
        replaced = await replacement.finish(upto, versions, fields.broken)
    if progress is not None:
        progress(shard, upto, upto)
    return ShardRebuilt(shard=shard, events=upto, rows=replaced)


async def _put_open_rows(state: FoldState, folds: Sequence[Fold], replacement: Replacement) -> None:
    rows: list[FoldedRow] = []
    for fold in folds:
        for row in state.rows(fold.projection):
            rows.append(row)
            if len(rows) >= CHUNK:
                await replacement.put(rows)
                rows.clear()
    await replacement.put(rows)
