"""Streams that stand still are tried again: once their fields can be read they go on from there, without a gap.

Their rows are as they were when the stream broke, since no row hears more than one stream or execution. They are folded up to
the shard's checkpoint, which does not move meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol, runtime_checkable

import msgspec

from noetl.errors import FoldFailed, LeaseLost, NoetlError, Unavailable
from noetl.faults import FaultInjected
from noetl.kernel.payloads.fields import FieldsReader
from noetl.kernel.projections.folds.fold import FoldedRow
from noetl.kernel.projections.row_updates import CannotFoldError, Folding
from noetl.kernel.projections.stores.port import ProjectionStore, StreamChanges
from noetl.model.broken_stream import BrokenStream, broken_at
from noetl.model.event import Event
from noetl.model.stream import Scope, Stream

log = logging.getLogger("noetl.projector")

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
LOOK_SECONDS: Final = 60.0
"""How often a shard is looked at of which nothing is known to be broken: somebody else may have marked a stream."""

Reads = Callable[[Sequence[BrokenStream]], FieldsReader]
"""Makes what reads fields, given the streams that stand still."""
Again = Callable[[BrokenStream, int], AsyncIterator[Event]]
"""Gives the events of a broken stream from where it stands up to a position."""


@runtime_checkable
class Rereads(Protocol):
    """Where events can be read as often as one likes: a ledger, with its archives or without."""

    def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Event]:
        """Give the events of a stream."""
        ...

    def read_execution(
        self, scope: Scope, execution_id: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[Event]:
        """Give the events of an execution by position, both bounds included."""
        ...


def again_from(source: Rereads) -> Again:
    """Read the events of broken streams from a ledger."""

    async def again(broken: BrokenStream, upto: int) -> AsyncIterator[Event]:
        execution_id = broken.stream.execution_id
        if execution_id is None:
            async for event in source.read(broken.stream):
                if broken.position <= event.position <= upto:
                    yield event
            return
        async for event in source.read_execution(broken.scope, execution_id, broken.position, upto):
            yield event

    return again


class Mending:
    """Tries the broken streams of shards again, less and less often."""

    def __init__(
        self, store: ProjectionStore, folding: Folding, fields: Reads, again: Again, batch_events: int
    ) -> None:
        self._store = store
        self._folding = folding
        self._fields = fields
        self._again = again
        self._batch_events = batch_events
        self._pauses: dict[int, float] = {}
        self._due: dict[int, float] = {}

    def seconds_left(self, shard: int) -> float:
        """Return when a shard is to be tried again; at first at once."""
        return max(self._due.get(shard, 0.0) - asyncio.get_running_loop().time(), 0.0)

    def schedule(self, shard: int) -> None:
        """Try a shard again soon, since a stream of it broke."""
        self._wait(shard, FIRST_PAUSE)

    async def mend(self, shard: int) -> None:
        """Try every broken stream of a shard once."""
        before = await self._store.broken_streams(shard)
        for broken in before:
            try:
                await self._go_on(broken)
            except (Unavailable, LeaseLost, FaultInjected):
                raise
            except NoetlError as problem:
                # Its history cannot be read, which is no reason for the shard to stand still.
                log.warning("stream %s cannot go on: %s", broken.stream_id, problem.message)
        if not before or not await self._store.broken_streams(shard):
            self._wait(shard, LOOK_SECONDS)
        else:
            known = self._pauses.get(shard, LOOK_SECONDS)
            self._wait(shard, FIRST_PAUSE if known == LOOK_SECONDS else min(known * 2, LONGEST_PAUSE))

    def _wait(self, shard: int, pause: float) -> None:
        self._pauses[shard] = pause
        self._due[shard] = asyncio.get_running_loop().time() + pause

    async def _go_on(self, broken: BrokenStream) -> None:
        upto = (await self._store.checkpoints()).positions[broken.shard]
        at: BrokenStream | None = broken
        async with aclosing(_parts(self._again(broken, upto), self._batch_events)) as parts:
            async for part, is_last in parts:
                assert at is not None
                at = await self._fold(at, part, upto, is_last=is_last)
                if at is None or at.position <= part[-1].position:
                    return
        if at is broken:
            # Nothing is left of it between there and the checkpoint.
            await self._save(broken, upto, [], None)

    async def _fold(self, at: BrokenStream, part: Sequence[Event], upto: int, *, is_last: bool) -> BrokenStream | None:
        """Fold a part of a stream, as far as that goes; return where it stands then, None when it goes on."""
        reader = self._fields(())
        groups = list(reader.divided(part))
        standing: BrokenStream | None = at
        for place, group in enumerate(groups):
            assert standing is not None
            read = await reader.read(group)
            rows, stop = await self._rows(standing, read)
            stop = stop or (reader.broken[0] if reader.broken else None)
            if stop is not None and stop.position == standing.position and stop.message == standing.message:
                return standing
            ended = is_last and place == len(groups) - 1
            following = stop or (None if ended else msgspec.structs.replace(standing, position=group[-1].position + 1))
            if not await self._save(standing, upto, rows, following):
                return standing
            standing = following
            if stop is not None:
                return stop
        return standing

    async def _rows(self, at: BrokenStream, events: Sequence[Event]) -> tuple[list[FoldedRow], BrokenStream | None]:
        """Fold events; one that cannot be folded keeps its stream where it is, and not the whole shard."""
        if not events:
            return [], None
        try:
            return await self._folding.folded(at.shard, at.position - 1, events, going_on=True), None
        except CannotFoldError as problem:
            before = [event for event in events if event.position < problem.event.position]
            rows, stop = await self._rows(at, before)
            code = problem.error.code if isinstance(problem.error, NoetlError) else FoldFailed.code
            return rows, stop or broken_at(problem.event, code, str(problem.error))
        except Unavailable:
            raise
        except NoetlError as problem:
            return [], broken_at(events[0], problem.code, problem.message)

    async def _save(self, at: BrokenStream, upto: int, rows: list[FoldedRow], following: BrokenStream | None) -> bool:
        known = tuple(await self._store.broken_streams(at.shard))
        if not any(one.stream == at.stream and one.position == at.position for one in known):
            return False
        streams = StreamChanges(
            known=known,
            broken=() if following is None else (following,),
            mended=(at.stream,) if following is None else (),
        )
        saved = await self._store.save_projections(at.shard, upto, upto, rows, (), self._folding.versions, streams)
        if saved and following is None:
            extra = {"action": "projector.stream_mended", "stream": at.stream_id, "shard": at.shard}
            log.info("stream %s goes on", at.stream_id, extra=extra)
        return saved


async def _parts(events: AsyncIterator[Event], size: int) -> AsyncGenerator[tuple[list[Event], bool], None]:
    """Give events in parts, and tell of each whether it is the last."""
    part: list[Event] = []
    async for event in events:
        if len(part) == size:
            yield part, False
            part = []
        part.append(event)
    if part:
        yield part, True
