"""Projects one shard batch by batch: read after the checkpoint, load the rows, fold, save rows and checkpoint together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, runtime_checkable

from noetl.errors import HistoryNotKept, NoetlError, Unsupported
from noetl.faults import reach
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.project.folds.fold import FoldedRow, RowKey
from noetl.project.folds.registry import FoldRegistry
from noetl.project.folds.state import FoldState
from noetl.project.port import ProjectionStore
from noetl.project.upcast import Upcasters

log = logging.getLogger("noetl.projector")

AT_ONCE = 2
"""Batches under way at the same time: one is folded while another is at the database.

More were measured to gain nothing for one projector, and to cost two of them on two cores a seventh of their rate.
"""


class Source(Protocol):
    """Where the events of shards come from: a ledger, or what has been delivered of one."""

    def read_shard(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of a shard by position, both bounds included, up to what there is now."""
        ...

    async def head(self) -> Mark:
        """Return the last position of each shard that can be read."""
        ...


@runtime_checkable
class InPages(Protocol):
    """A ledger whose shards are read in pages, which is quicker than one by one."""

    def shard_pages(
        self, shard: int, from_position: int, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard in pages, both bounds included."""
        ...


class Batches:
    """The way of events into rows, for any shard."""

    def __init__(
        self,
        ledger: Source,
        store: ProjectionStore,
        folds: FoldRegistry,
        upcasters: Upcasters,
        batch_events: int,
        on_batch: Callable[[int, list[Event]], Awaitable[None]] | None,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._folds = folds.folds()
        self._versions = {fold.projection: fold.version for fold in self._folds}
        self._upcasters = upcasters
        self._batch_events = batch_events
        self._on_batch = on_batch
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def catch_up(self, shard: int, upto: int | None) -> None:
        """Project a shard up to a position, or to its head as it is found."""
        position = await self._checkpoint(shard)
        while upto is None or position < upto:
            # Held for one batch only: shards with a long way to go must not keep the others waiting.
            async with self._at_once:
                events = await self._read(shard, position, upto)
                if not events:
                    await self._check_head(shard, position)
                    return
                reached = await self._project(shard, position, events)
                position = await self._checkpoint(shard) if reached is None else reached
                if upto is None and len(events) < self._batch_events and position == events[-1].position:
                    return

    async def _project(self, shard: int, after: int, events: list[Event]) -> int | None:
        """Save the events' rows and return the position reached, or None when another projector was faster.

        Events before one that cannot be projected are saved alone; once it comes first it is raised, with its place.
        """
        try:
            rows = await self._folded(shard, after, events)
            reach("project.before_rows")
            upto = events[-1].position
            saved = await self._store.save_projections(shard, after, upto, rows, events, self._versions)
        except _CannotFoldError as problem:
            if problem.index:
                return await self._project(shard, after, events[: problem.index])
            raise _placed(problem.error, events[0]) from problem.error
        except (TypeError, ValueError) as problem:
            # A row cannot be written down, and it is not known which event made it so.
            if len(events) > 1:
                return await self._project(shard, after, events[: len(events) // 2])
            raise _placed(problem, events[0]) from problem
        if not saved:
            return None
        await self._tell(shard, events)
        return upto

    async def _tell(self, shard: int, events: list[Event]) -> None:
        """Pass a committed batch on. What goes wrong there is no reason to stop projecting."""
        if self._on_batch is None:
            return
        try:
            await self._on_batch(shard, events)
        except Exception as error:
            extra = {"action": "projector.batch_not_passed_on", "shard": shard, "position": events[-1].position}
            log.warning("what follows a projected batch failed: %s", error, extra=extra, exc_info=error)

    async def _folded(self, shard: int, after: int, events: list[Event]) -> list[FoldedRow]:
        state = FoldState(self._folds, upcasters=self._upcasters, keep_ended=True)
        state.skip_to(shard, after)
        stored = await self._store.load_projections(_keys_of(state, events))
        try:
            state.seed(stored)
        except Unsupported as error:
            raise Unsupported(error.message, hint="run `noetl projections rebuild`", **error.details) from error
        try:
            state.apply_many(events)
        except Exception as error:
            reached = state.positions.get(shard, after)
            raise _CannotFoldError(sum(event.position <= reached for event in events), error) from error
        return state.touched()

    async def _read(self, shard: int, after: int, upto: int | None) -> list[Event]:
        # Positions are dense, so so many positions hold so many events.
        last = after + self._batch_events if upto is None else min(after + self._batch_events, upto)
        if isinstance(self._ledger, InPages):
            pages = self._ledger.shard_pages(shard, after + 1, to_position=last)
            return [event async for page in pages for event in page]
        return [event async for event in self._ledger.read_shard(shard, after + 1, to_position=last)]

    async def _checkpoint(self, shard: int) -> int:
        return (await self._store.checkpoints()).positions[shard]

    async def _check_head(self, shard: int, position: int) -> None:
        head = (await self._ledger.head()).positions[shard]
        # Events may have been appended since we looked; only a hole stays one.
        if head > position and not await self._read(shard, position, None):
            raise HistoryNotKept(
                f"events of shard {shard} after position {position} are not in the ledger, whose head is {head}",
                hint="run `noetl projections rebuild`, which also reads archives",
            )


def _keys_of(state: FoldState, events: list[Event]) -> list[RowKey]:
    try:
        return state.keys_of(events)
    except Exception as error:
        for index, event in enumerate(events):
            try:
                state.keys_of([event])
            except Exception as own:
                raise _CannotFoldError(index, own) from own
        raise _CannotFoldError(0, error) from error


class _CannotFoldError(Exception):
    """The event at this index stops the batch."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


def _placed(error: Exception, event: Event) -> NoetlError:
    """Return the error with the event it happened at."""
    if not isinstance(error, NoetlError):
        error = NoetlError(
            f"event {event.event_id} ({event.event_type}) at position {event.position} of shard {event.shard} "
            f"cannot be projected: {type(error).__name__}: {error}"
        )
    error.details.setdefault("event_id", str(event.event_id))
    error.details.setdefault("position", event.position)
    return error
