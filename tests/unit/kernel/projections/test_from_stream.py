"""A projector without a ledger: what a stream brings is projected once, in order, and never across a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from noetl.errors import HistoryNotKept
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.projector import Projector
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.stream_events import StreamEvents
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.memory import MemoryStream
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.testing.samples.projected_ledger import HOME, a_run, pure_rows, record, stored_rows


class FarSide:
    """A stream, and a projector of all shards that has nothing else."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.stream = MemoryStream("noetl_events")
        self.store = MemoryProjectionStore()
        self.batches = asyncio.Queue[tuple[int, int]]()
        self.events = StreamEvents(
            self.stream, "far", self.store.checkpoints, redelivery_seconds=0.05, poll_seconds=0.01
        )

    async def projected(self, shard: int, events: list[Event]) -> None:
        """Take note of a batch and acknowledge it."""
        await self.events.projected(shard, events)
        self.batches.put_nowait((shard, events[-1].position))

    @asynccontextmanager
    async def projecting(self, batch_events: int = 3) -> AsyncIterator[Projector]:
        """Project for the time of the block."""
        projector = Projector(
            self.events,
            self.store,
            FoldRegistry(),
            Upcasters(),
            listen=self.events.listen,
            batch_events=batch_events,
            on_batch=self.projected,
        )
        self.events.hold(range(16))
        await projector.start()
        yield projector
        await projector.stop()
        await self.events.close()

    async def until(self, mark: Mark) -> None:
        """Wait until the projections are at a mark."""
        async with asyncio.timeout(20):
            while not (await self.store.checkpoints()).covers(mark):
                await self.batches.get()

    async def recorded(self, runs: int = 4) -> list[Event]:
        """Record runs and return all events, shard by shard."""
        for _ in range(runs):
            await record(self.ledger, a_run(HOME))
        return [event for shard in range(16) async for event in self.ledger.read_shard(shard)]


@pytest.fixture
def far() -> FarSide:
    return FarSide()


async def test_what_the_stream_brings_is_projected_and_acknowledged(far: FarSide) -> None:
    await far.stream.publish([message_of(event) for event in await far.recorded()])
    async with far.projecting():
        await far.until(await far.ledger.head())
    assert await stored_rows(far.store, HOME) == await pure_rows(far.ledger, built_in_folds())
    for shard in range(16):
        assert await (await far.stream.subscribe(f"far-{shard}", [shard])).lag() == 0


async def test_what_is_delivered_again_changes_nothing(far: FarSide) -> None:
    events = await far.recorded()
    await far.stream.publish([message_of(event) for event in events])
    async with far.projecting():
        await far.until(await far.ledger.head())
    rows = await stored_rows(far.store, HOME)
    await far.stream.wipe()
    more = await far.recorded(1)
    await far.stream.publish([message_of(event) for event in more])
    async with far.projecting():
        await far.until(await far.ledger.head())
    assert len(more) > len(events)
    found = await stored_rows(far.store, HOME)
    assert {key: found[key] for key in rows} == rows
    assert found == await pure_rows(far.ledger, built_in_folds())


async def test_a_gap_stops_its_shard_loudly_until_it_is_filled(far: FarSide) -> None:
    """INV-123."""
    events = await far.recorded(1)
    shard = max(range(16), key=lambda one: sum(event.shard == one for event in events))
    missing = next(event for event in events if event.shard == shard and event.position == 4)
    await far.stream.publish([message_of(event) for event in events if event is not missing])
    async with far.projecting() as projector:
        async with asyncio.timeout(20):
            while (await far.store.shard_states())[shard].failure is None:
                await far.events.wait()
        state = (await far.store.shard_states())[shard]
        assert state.failure is not None
        assert (state.position, state.failure.code, state.failure.position) == (3, "history_not_kept", 4)
        assert "noetl stream rebuild" in (state.failure.hint or "")
        with pytest.raises(HistoryNotKept, match=f"event 4 of shard {shard} did not come by the stream"):
            await projector.run_until(await far.ledger.head())
        await far.stream.publish([message_of(missing)])
        await far.until(await far.ledger.head())
    assert await stored_rows(far.store, HOME) == await pure_rows(far.ledger, built_in_folds())


async def test_a_shard_that_is_handed_over_is_gone_on_with_by_its_next_reader(far: FarSide) -> None:
    events = await far.recorded()
    half = [event for event in events if event.position <= 5]
    await far.stream.publish([message_of(event) for event in half])
    reached = [max((event.position for event in half if event.shard == shard), default=0) for shard in range(16)]
    async with far.projecting():
        await far.until(Mark(reached))
    await far.stream.publish([message_of(event) for event in events if event.position > 5])
    far.events = StreamEvents(far.stream, "far", far.store.checkpoints, redelivery_seconds=0.05, poll_seconds=0.01)
    async with far.projecting(100):
        await far.until(await far.ledger.head())
    assert await stored_rows(far.store, HOME) == await pure_rows(far.ledger, built_in_folds())


async def test_nothing_that_waits_is_acknowledged_with_what_comes_behind_it(far: FarSide) -> None:
    """INV-123: an acknowledgement covers all that came before, so a repetition must not take along what waits."""
    events = await far.recorded(1)
    shard = max(range(16), key=lambda one: sum(event.shard == one for event in events))
    own = [event for event in events if event.shard == shard]
    first, missing, *later = own
    again = msgspec.structs.replace(message_of(first), message_id="once more")
    await far.stream.publish([message_of(first)])
    reached = [1 if one == shard else 0 for one in range(16)]
    async with far.projecting():
        await far.until(Mark(reached))
        await far.stream.publish([*map(message_of, later), again])
        async with asyncio.timeout(20):
            while (await far.store.shard_states())[shard].failure is None:
                await far.events.wait()
    # Whoever reads on after a crash is given all that was not projected.
    far.events = StreamEvents(far.stream, "far", far.store.checkpoints, redelivery_seconds=0.05, poll_seconds=0.01)
    async with far.projecting(100):
        await far.stream.publish([message_of(missing)])
        await far.until(Mark([own[-1].position if one == shard else 0 for one in range(16)]))
    assert len(later) > 1
