"""Folds events onto stored rows: events whose fields were read go in, the rows they change come out, to be stored."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.errors import Unsupported
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.stores.port import Projections
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event


class CannotFoldError(Exception):
    """This event stops the batch."""

    def __init__(self, event: Event, error: Exception) -> None:
        super().__init__(event.position, error)
        self.event = event
        self.error = error


class Folding:
    """The folds of a projector, over the rows of its store."""

    def __init__(self, store: Projections, folds: FoldRegistry, upcasters: Upcasters) -> None:
        self._store = store
        self._folds = folds.folds()
        self._upcasters = upcasters
        self.versions = {fold.projection: fold.version for fold in self._folds}

    async def folded(
        self, shard: int, after: int, events: Sequence[Event], *, going_on: bool = False
    ) -> list[FoldedRow]:
        """Return the rows that the events change; `after` is what the stored rows have already.

        With `going_on` these are events of one stream that was broken, and rows that others have moved meanwhile are refused.
        """
        state = FoldState(self._folds, upcasters=self._upcasters, keep_ended=True)
        state.skip_to(shard, after)
        stored = await self._store.load_projections(_keys_of(state, events))
        moved = [row for row in stored if going_on and row.last_position > after]
        if moved:
            raise Unsupported(
                f"row {moved[0].key.row_id!r} of {moved[0].key.projection} was changed by another stream meanwhile",
                hint=f"run `noetl projections rebuild --shard {shard}`, and write all events of one object to one stream",
            )
        try:
            state.seed(stored)
        except Unsupported as error:
            raise Unsupported(error.message, hint="run `noetl projections rebuild`", **error.details) from error
        try:
            state.apply_many(events)
        except Exception as error:
            reached = state.positions.get(shard, after)
            raise CannotFoldError(next(event for event in events if event.position > reached), error) from error
        return state.touched()


def _keys_of(state: FoldState, events: Sequence[Event]) -> list[RowKey]:
    try:
        return state.keys_of(events)
    except Exception as error:
        for event in events:
            try:
                state.keys_of([event])
            except Exception as own:
                raise CannotFoldError(event, own) from own
        raise CannotFoldError(events[0], error) from error
