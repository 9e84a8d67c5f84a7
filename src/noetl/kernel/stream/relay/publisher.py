"""Fills a stream: reads events behind the cursors of held shards, publishes them, and moves the cursors.

If the stream is not the one the cursors belong to, or has lost messages, it starts again from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from noetl.errors import NotFound
from noetl.faults import reach
from noetl.kernel.leases.shards import ShardLeases
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.port import EventStream, Message, StreamState
from noetl.kernel.stream.relay.progress import Cursor, Cursors
from noetl.model.lease import Proof

_log = logging.getLogger(__name__)

BATCH_EVENTS: Final = 2_000
"""Events read and published together; few enough that a lost lease repeats little."""


class RelayMeter(Protocol):
    """Counts what a relay does."""

    def relayed(self, published: int, lags: Mapping[int, int]) -> None:
        """Take note of messages that were published, and of how many events of each held shard wait."""
        ...

    def rebuilt(self, shards: int) -> None:
        """Take note that shards are published from their beginning again."""
        ...

    def acknowledged(self, seconds: float) -> None:
        """Take note of how long the stream took to acknowledge a batch."""
        ...

    def decided(self, published: int) -> None:
        """Take note of decided events that were published for the materializer."""
        ...


class Filling:
    """The shards of one process on their way into one stream."""

    def __init__(
        self,
        database: Database,
        stream: EventStream,
        leases: ShardLeases,
        meter: RelayMeter | None,
        batch_events: int = BATCH_EVENTS,
    ) -> None:
        self._database = database
        self._stream = stream
        self._leases = leases
        self._meter = meter
        self._batch_events = batch_events
        self._cursors = Cursors(database, stream.name)
        self._proofs: dict[int, Proof] = {}
        """The lease under which the cursor of each shard was read."""
        self._at: dict[int, int] = {}
        """Where the cursor of each shard stands."""
        self._heads: dict[int, int] = {}
        self._created = ""
        self._last_sequence = 0

    async def open(self) -> None:
        """Make the stream if it is absent, and look at it."""
        await self._see(await self._stream.open())

    async def look(self) -> None:
        """See whether the stream is still the one it was."""
        try:
            await self._see(await self._stream.state())
        except NotFound:
            await self.open()

    async def catch_up(self, stopping: asyncio.Event) -> None:
        """Publish until the ledger's end is reached, reading the next events while the last ones are published."""
        await self._take_up()
        page = await self._read({})
        while page is not None and not stopping.is_set():
            following = asyncio.create_task(self._read(page.reached), name="noetl-relay-read")
            try:
                await self._relay(page)
                await self._take_up()
                page = await following or await self._read({})
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _see(self, state: StreamState) -> None:
        if state.created == self._created and state.last_sequence < self._last_sequence:
            state = await self._make_anew(state.last_sequence)
        if state.created != self._created:
            self._created, self._last_sequence = state.created, 0
            self._proofs.clear()
            self._at.clear()
        self._last_sequence = max(self._last_sequence, state.last_sequence)

    async def _make_anew(self, found: int) -> StreamState:
        """Wipe a stream that lost messages: every relay sees that, and no reader takes a hole for the whole."""
        _log.warning(
            "the stream %s acknowledged message %d and came to %d later: it lost messages and is made anew",
            self._stream.name, self._last_sequence, found,
        )  # fmt: skip
        await self._stream.wipe()
        return await self._stream.state()

    async def _take_up(self) -> None:
        """Find out where to go on in shards that were taken since the last time, and forget those that were lost."""
        proofs = {shard: proof for shard in self._leases.held if (proof := self._leases.proof(shard)) is not None}
        kept = {shard for shard, proof in self._proofs.items() if proofs.get(shard) == proof}
        self._proofs = {shard: self._proofs[shard] for shard in kept}
        self._at = {shard: self._at[shard] for shard in kept}
        new = sorted(proofs.keys() - kept)
        if not new:
            return
        cursors = await self._cursors.all()
        # What the stream acknowledged to relays that are gone must be there too.
        told = [one.stream_sequence for one in cursors.values() if one.stream_created == self._created]
        self._last_sequence = max([self._last_sequence, *told])
        await self.look()
        again = []
        for shard in new:
            cursor = cursors.get(shard, Cursor(0, None, 0))
            position = cursor.position if cursor.stream_created == self._created else 0
            if position < cursor.position:
                again.append(shard)
            if position == 0 and (first := await self._cursors.first(shard)) is not None and first > 1:
                _log.info("shard %d begins at position %d: what was before it is no longer in the ledger", shard, first)
            self._proofs[shard], self._at[shard] = proofs[shard], position
        if again:
            _log.warning("the stream %s was made anew: shards %s are published again from the ledger's first event on",
                         self._stream.name, again)  # fmt: skip
            if self._meter is not None:
                self._meter.rebuilt(len(again))

    async def _read(self, reached: Mapping[int, int]) -> Page | None:
        self._heads = await self._cursors.heads()
        behind = {shard: reached.get(shard, position) for shard, position in self._at.items()}
        return await read_page(self._database, behind, self._heads, self._batch_events)

    async def _relay(self, page: Page) -> None:
        """Publish a page, then move the cursors: of those shards only that it continues and that are still held."""
        shards = {
            shard for shard, position in page.behind.items()
            if self._at.get(shard) == position and self._leases.proof(shard) == self._proofs[shard]
        }  # fmt: skip
        messages = [message for message in page.messages if message.shard in shards]
        reach("relay.before_publish")
        if not await self._publish(messages):
            return
        reach("relay.after_publish")
        proofs = {shard: self._proofs[shard] for shard in shards}
        positions = {shard: page.reached[shard] for shard in shards}
        moved = await self._cursors.move(positions, self._created, self._last_sequence, proofs)
        reach("relay.after_cursor")
        self._at |= {shard: page.reached[shard] for shard in moved}
        for lost in shards - moved:
            del self._at[lost], self._proofs[lost]
        if self._meter is not None:
            self._meter.relayed(len(messages), {shard: self._heads[shard] - at for shard, at in self._at.items()})

    async def _publish(self, messages: list[Message]) -> bool:
        """Publish in order, and tell whether the stream is still the one it was."""
        if not messages:
            return True
        began = time.perf_counter()
        published = await self._stream.publish(messages)
        if self._meter is not None:
            self._meter.acknowledged(time.perf_counter() - began)
        new = [one.sequence for one in published if not one.duplicate]
        if new and new[0] <= self._last_sequence:
            state = await self._stream.state()
            await self._see(state if state.created != self._created else await self._make_anew(new[0] - 1))
            return False
        self._last_sequence = max([self._last_sequence, *new])
        return True


# A shard's events lie in the partitions of many months, each with its own index: asked per shard, each is read in order.
_PENDING = f"""
SELECT found.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS wanted (shard, behind, upto)
CROSS JOIN LATERAL (
    SELECT {COLUMNS} FROM noetl.event
    WHERE shard = wanted.shard AND position > wanted.behind AND position <= wanted.upto
    ORDER BY position LIMIT $4) AS found
"""  # noqa: S608


class Page(msgspec.Struct, frozen=True):
    """Messages, and for each shard the position behind which they begin and the one up to which nothing is missing."""

    messages: list[Message]
    behind: dict[int, int]
    reached: dict[int, int]


async def read_page(database: Database, behind: Mapping[int, int], upto: Mapping[int, int], limit: int) -> Page | None:
    """Return the next events of each shard, about `limit` in all; None when no shard has any before its bound."""
    wanted = {shard: position for shard, position in behind.items() if position < upto[shard]}
    if not wanted:
        return None
    each = max(1, limit // len(wanted))
    bounds = [upto[shard] for shard in wanted]
    async with database.transaction(None, "relay") as connection:
        rows = await connection.fetch(_PENDING, list(wanted), list(wanted.values()), bounds, each)
    messages: list[Message] = []
    counts, last = dict.fromkeys(wanted, 0), dict(wanted)
    for event in to_events(rows):
        messages.append(message_of(event))
        counts[event.shard] += 1
        last[event.shard] = event.position
    # Fewer than asked for: what is left up to the bound was archived.
    reached = {shard: last[shard] if counts[shard] == each else upto[shard] for shard in wanted}
    return Page(messages, wanted, reached)
