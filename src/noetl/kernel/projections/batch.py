"""Projects one shard batch by batch: read after the checkpoint, load the rows, fold, save rows and checkpoint together.

Fields that lie in the payload store are read first. A stream whose fields cannot be read stands still from there on, which is
saved with the checkpoint, and its shard goes on; `mending` tries it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from noetl.errors import HistoryNotKept, NoetlError
from noetl.faults import reach
from noetl.kernel.payloads.fields import FieldsReader
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.row_updates import CannotFoldError, Folding
from noetl.kernel.projections.stores.port import ProjectionStore, StreamChanges
from noetl.kernel.projections.stream_repair import Mending, Reads, Rereads, again_from
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope

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
        fields: Reads,
        rereads: Rereads | None = None,
    ) -> None:
        """Take the parts: `fields` makes what reads fields, `rereads` gives events once more where `ledger` cannot."""
        self._ledger = ledger
        self._store = store
        self._folding = Folding(store, folds, upcasters)
        self._batch_events = batch_events
        self._on_batch = on_batch
        self._fields = fields
        self._at_once = asyncio.Semaphore(AT_ONCE)
        source = rereads if rereads is not None else ledger
        self._keeps = isinstance(source, Rereads)
        again = again_from(source) if isinstance(source, Rereads) else lambda broken, _upto: store.held_events(broken)
        self.mending = Mending(store, self._folding, fields, again, batch_events)
        self._broken: dict[int, tuple[BrokenStream, ...]] = {}
        """The broken streams of each shard as they were last seen."""

    async def catch_up(self, shard: int, upto: int | None) -> None:
        """Project a shard up to a position, or to its head as it is found."""
        if not self.mending.seconds_left(shard):
            await self.mending.mend(shard)
            self._broken.pop(shard, None)
        position = await self._checkpoint(shard)
        while upto is None or position < upto:
            # Held for one batch only: shards with a long way to go must not keep the others waiting.
            async with self._at_once:
                events = await self._read(shard, position, upto)
                if not events:
                    await self._check_head(shard, position)
                    return
                position = await self._project_all(shard, position, events)
                if upto is None and len(events) < self._batch_events and position == events[-1].position:
                    return

    async def _project_all(self, shard: int, after: int, events: list[Event]) -> int:
        """Project events, part by part where their fields take too much memory together; return where the shard stands."""
        left = events
        while left:
            reached = await self._project(shard, after, left)
            if reached is None:
                return await self._checkpoint(shard)
            after, left = reached, [event for event in left if event.position > reached]
        return after

    async def _project(self, shard: int, after: int, events: Sequence[Event]) -> int | None:
        """Save the rows of the first events and return the position reached, or None when another projector was faster.

        Events before one that cannot be projected are saved alone; once it comes first it is raised, with its place.
        """
        known = await self._known(shard)
        reader = self._fields(known)
        group = list(next(reader.divided(events)))
        read = await reader.read(group)
        streams = StreamChanges(known=known, broken=tuple(reader.broken), held=self._held(group, read))
        try:
            rows = await self._folding.folded(shard, after, read)
            reach("project.before_rows")
            saved = await self._store.save_projections(
                shard, after, group[-1].position, rows, group, self._folding.versions, streams
            )
        except CannotFoldError as problem:
            before = [event for event in group if event.position < problem.event.position]
            if before:
                return await self._project(shard, after, before)
            raise _placed(problem.error, problem.event) from problem.error
        except (TypeError, ValueError) as problem:
            # A row cannot be written down, and it is not known which event made it so.
            if len(group) > 1:
                return await self._project(shard, after, group[: len(group) // 2])
            raise _placed(problem, group[0]) from problem
        if not saved or reader.broken:
            self._broken.pop(shard, None)
        if not saved:
            return None
        self._note(shard, reader)
        await self._tell(shard, group)
        return group[-1].position

    def _note(self, shard: int, reader: FieldsReader) -> None:
        for broken in reader.broken:
            self.mending.schedule(shard)
            extra = {"action": "projector.stream_broken", "stream": broken.stream_id, "position": broken.position}
            log.warning("%s", broken.sentence(), extra=extra)

    async def _known(self, shard: int) -> tuple[BrokenStream, ...]:
        if shard not in self._broken:
            self._broken[shard] = tuple(await self._store.broken_streams(shard))
        return self._broken[shard]

    def _held(self, group: Sequence[Event], read: Sequence[Event]) -> tuple[Event, ...]:
        """Return what was not folded, where it could not be read again."""
        if self._keeps or len(read) == len(group):
            return ()
        folded = {event.position for event in read}
        return tuple(event for event in group if event.position not in folded)

    async def _tell(self, shard: int, events: list[Event]) -> None:
        """Pass a committed batch on. What goes wrong there is no reason to stop projecting."""
        if self._on_batch is None:
            return
        try:
            await self._on_batch(shard, events)
        except Exception as error:
            extra = {"action": "projector.batch_not_passed_on", "shard": shard, "position": events[-1].position}
            log.warning("what follows a projected batch failed: %s", error, extra=extra, exc_info=error)

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
