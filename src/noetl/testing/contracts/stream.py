"""The stream's contract as tests: every sentence of `noetl.kernel.stream.port`. A subclass gives a `testbed` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol

import pytest

from noetl.errors import InputError, NotFound
from noetl.kernel.stream.port import Delivery, DurableLag, EventStream, Message, Place, Subscription
from noetl.testing.engines.short_leases import until

SOON = 10.0
"""Longer than anything takes that is going to happen."""
_CLOCKS_APART = timedelta(minutes=1)


class StreamTestbed(Protocol):
    """A stream of its own for a test, and the way messages get into it."""

    stream: EventStream
    """Opened, and empty."""

    async def put(self, shard: int, count: int, tenant_id: str = "acme") -> list[Message]:
        """Publish so many messages to a shard and return them as they are to be given."""
        ...

    async def again(self) -> EventStream:
        """Close the stream and return it opened again."""
        ...


async def drain(subscription: Subscription, count: int, *, limit: int = 100, ack: bool = True) -> list[Delivery]:
    """Fetch until so many messages came."""
    given: list[Delivery] = []
    while len(given) < count:
        batch = await subscription.fetch(min(limit, count - len(given)), SOON)
        assert batch, f"{len(given)} of {count} messages came"
        given += batch
        if ack:
            await subscription.acknowledge(batch)
    return given


async def nothing_more(subscription: Subscription) -> None:
    """Check that a durable has nothing to give."""
    assert await subscription.fetch(10, 0.05) == []


async def comes_to(look: Callable[[], Awaitable[Any]], wanted: object) -> None:
    """Look until a figure is as wanted: a server counts a moment after it said that it has the message."""

    async def is_as_wanted() -> bool:
        return bool(await look() == wanted)

    await until(is_as_wanted, f"{wanted}, but {await look()}", within=SOON)


async def told_of_its_end(subscription: Subscription) -> None:
    """Read until the subscription says that there is nothing left to read from."""
    with pytest.raises(NotFound):
        async for _ in _for_ever(subscription):
            pass


async def _for_ever(subscription: Subscription) -> AsyncIterator[list[Delivery]]:
    while True:
        yield await subscription.fetch(1, SOON)


def ids(messages: Iterable[Message | Delivery]) -> list[str]:
    """Return the message ids."""
    return [(one.message if isinstance(one, Delivery) else one).message_id for one in messages]


def of_shard(given: Sequence[Delivery], shard: int) -> list[Delivery]:
    """Return the deliveries of one shard."""
    return [each for each in given if each.message.shard == shard]


class StreamContract:
    """Tests for any stream."""

    keeps_messages: ClassVar[bool] = True
    """Whether messages are the stream's own, so that wiping removes them."""
    knows_readers: ClassVar[bool] = True
    """Whether the stream can tell who waits for messages."""

    async def test_messages_of_a_shard_come_in_the_order_of_publishing(self, testbed: StreamTestbed) -> None:
        put = {shard: await testbed.put(shard, 20) for shard in (0, 7, 15)}
        reader = await testbed.stream.subscribe("reader")
        given = await drain(reader, 60, limit=7)
        for shard, messages in put.items():
            mine = of_shard(given, shard)
            assert [each.message for each in mine] == messages
            assert [each.sequence for each in mine] == sorted({each.sequence for each in mine})
        assert not any(each.redelivered for each in given)
        await nothing_more(reader)

    async def test_a_reader_that_waits_is_given_what_is_published_meanwhile(self, testbed: StreamTestbed) -> None:
        reader = await testbed.stream.subscribe("reader")
        waiting = asyncio.create_task(reader.fetch(10, SOON))
        await nothing_more(await testbed.stream.subscribe("other"))
        put = await testbed.put(3, 1)
        assert ids(await waiting) == ids(put)

    async def test_a_limit_is_kept(self, testbed: StreamTestbed) -> None:
        await testbed.put(1, 5)
        reader = await testbed.stream.subscribe("reader")
        assert len(await drain(reader, 2, limit=2)) == 2
        assert len(await reader.fetch(2, SOON)) <= 2

    async def test_many_small_batches_give_each_message_once(self, testbed: StreamTestbed) -> None:
        reader = await testbed.stream.subscribe("reader")

        async def fill() -> list[Message]:
            return [message for _ in range(8) for shard in (0, 1, 2, 3) for message in await testbed.put(shard, 10)]

        filling = asyncio.create_task(fill())
        given = await drain(reader, 320, limit=33)
        put = await filling
        for shard in range(4):
            assert ids(of_shard(given, shard)) == [m.message_id for m in put if m.shard == shard]
        await nothing_more(reader)

    async def test_what_is_not_acknowledged_is_given_again_after_the_ack_wait(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(2, 3)
        reader = await testbed.stream.subscribe("reader", ack_wait_seconds=0.2)
        first = await drain(reader, 3, ack=False)
        await reader.acknowledge(first[:1])
        again = await drain(reader, 2, ack=False)
        assert ids(again) == ids(put[1:])
        assert all(each.redelivered for each in again)

    async def test_what_is_not_acknowledged_is_given_to_the_next_reader_at_once(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(2, 5)
        reader = await testbed.stream.subscribe("reader", ack_wait_seconds=3600)
        given = await drain(reader, 5, ack=False)
        await reader.acknowledge(given[:2])
        await reader.close()
        put += await testbed.put(2, 1)
        assert ids(await drain(await testbed.stream.subscribe("reader"), 4)) == ids(put[2:])

    async def test_a_second_reader_takes_the_durable_over(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(2, 3)
        first = await testbed.stream.subscribe("reader", ack_wait_seconds=3600)
        await drain(first, 3, ack=False)
        second = await testbed.stream.subscribe("reader", ack_wait_seconds=3600)
        assert ids(await drain(second, 3)) == ids(put)

    async def test_what_is_acknowledged_is_not_given_again(self, testbed: StreamTestbed) -> None:
        await testbed.put(4, 5)
        reader = await testbed.stream.subscribe("reader", ack_wait_seconds=0.1)
        given = await drain(reader, 5)
        await reader.acknowledge(given)
        assert await reader.fetch(10, 0.3) == []
        stream = await testbed.again()
        await nothing_more(await stream.subscribe("reader"))

    async def test_acknowledging_covers_earlier_messages_of_the_same_shard_alone(self, testbed: StreamTestbed) -> None:
        await testbed.put(5, 3)
        others = await testbed.put(6, 3)
        await testbed.put(5, 3)
        reader = await testbed.stream.subscribe("reader")
        given = await drain(reader, 9, ack=False)
        await reader.acknowledge(of_shard(given, 5)[-1:])
        await reader.close()
        reader = await testbed.stream.subscribe("reader")
        assert ids(await drain(reader, 3)) == ids(others)
        await nothing_more(reader)

    async def test_publishing_the_same_ids_again_changes_nothing(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(8, 4)
        published = await testbed.stream.publish(put)
        assert all(each.duplicate for each in published)
        reader = await testbed.stream.subscribe("reader")
        given = await drain(reader, 4)
        assert ids(given) == ids(put)
        assert [each.sequence for each in given] == [each.sequence for each in published]
        await nothing_more(reader)

    async def test_durables_do_not_know_of_each_other(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(9, 3)
        one, other = await testbed.stream.subscribe("one"), await testbed.stream.subscribe("other")
        assert ids(await drain(one, 3)) == ids(put)
        assert await other.lag() == 3
        assert ids(await drain(other, 3)) == ids(put)

    async def test_a_reader_of_some_shards_is_given_those(self, testbed: StreamTestbed) -> None:
        put = {shard: await testbed.put(shard, 2) for shard in (0, 1, 2)}
        reader = await testbed.stream.subscribe("reader", [0, 2])
        given = await drain(reader, 4)
        assert sorted(ids(given)) == sorted(ids([*put[0], *put[2]]))
        await nothing_more(reader)
        assert await reader.lag() == 0
        await reader.close()
        # The shard that was not read has its own place still.
        reader = await testbed.stream.subscribe("reader", [1, 2])
        assert ids(await drain(reader, 2)) == ids(put[1])
        await nothing_more(reader)

    async def test_a_new_durable_begins_where_it_is_told_and_a_known_one_goes_on(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(3, 5)
        placed = [each.sequence for each in await testbed.stream.publish(put)]
        late = await testbed.stream.subscribe("late", [3], from_sequence=placed[3])
        assert ids(await drain(late, 2)) == ids(put[3:])
        await late.close()
        late = await testbed.stream.subscribe("late", [3], from_sequence=1)
        await nothing_more(late)

    async def test_lag_counts_what_is_not_acknowledged(self, testbed: StreamTestbed) -> None:
        reader = await testbed.stream.subscribe("reader")
        assert await reader.lag() == 0
        await testbed.put(0, 2)
        await testbed.put(1, 2)
        await comes_to(reader.lag, 4)
        given = await drain(reader, 4, ack=False)
        await comes_to(reader.lag, 4)
        await reader.acknowledge(of_shard(given, 0))
        await comes_to(reader.lag, 2)

    async def test_lags_of_all_durables_are_seen_by_others_and_nothing_is_taken_over(
        self, testbed: StreamTestbed
    ) -> None:
        assert await testbed.stream.lags() == []
        one = await testbed.stream.subscribe("one", [0, 1])
        await testbed.stream.subscribe("other", [1])
        await testbed.put(0, 2)
        await testbed.put(1, 3)
        behind = [DurableLag("one", 0, 2), DurableLag("one", 1, 3), DurableLag("other", 1, 3)]
        await comes_to(testbed.stream.lags, behind)
        given = await drain(one, 5, ack=False)
        await comes_to(testbed.stream.lags, behind)
        await one.acknowledge(of_shard(given, 1))
        await comes_to(testbed.stream.lags, [behind[0], DurableLag("one", 1, 0), behind[2]])
        # A shard that is not read any more keeps its place.
        one = await testbed.stream.subscribe("one", [1])
        await testbed.put(0, 1)
        await comes_to(testbed.stream.lags, [DurableLag("one", 0, 3), DurableLag("one", 1, 0), behind[2]])

    async def test_it_is_known_since_when_the_first_message_behind_a_sequence_waits(
        self, testbed: StreamTestbed
    ) -> None:
        before = datetime.now(UTC) - _CLOCKS_APART
        assert await testbed.stream.came_at(4, 0) is None
        put = await testbed.put(4, 2)
        await testbed.put(5, 1)
        more = await testbed.put(4, 1)
        first, second, third = [each.sequence for each in await testbed.stream.publish([*put, *more])]
        times = [await testbed.stream.came_at(4, after) for after in (0, first, second)]
        known = [time for time in times if time is not None]
        assert len(known) == 3
        assert before < known[0] <= known[1] <= known[2] < datetime.now(UTC) + _CLOCKS_APART
        assert await testbed.stream.came_at(4, third) is None
        assert await testbed.stream.came_at(6, 0) is None

    async def test_the_state_says_what_the_stream_holds(self, testbed: StreamTestbed) -> None:
        before = await testbed.stream.state()
        assert (before.messages, before.first_sequence) == (0, before.last_sequence + 1)
        await testbed.put(0, 3)
        after = await testbed.stream.state()
        assert (after.name, after.created) == (testbed.stream.name, before.created)
        assert (after.messages, after.last_sequence - before.last_sequence) == (3, 3)
        assert await (await testbed.again()).state() == after

    async def test_places_tell_which_message_stands_there(self, testbed: StreamTestbed) -> None:
        put = {shard: await testbed.put(shard, 3) for shard in (0, 7)}
        given = await drain(await testbed.stream.subscribe("reader"), 6)
        placed = {Place(each.message.shard, each.sequence): each.message.message_id for each in given}
        nowhere = Place(0, max(place.sequence for place in placed) + 5)
        assert await testbed.stream.ids_at([*placed, nowhere]) == placed
        other = Place(3, next(iter(placed)).sequence)
        assert await testbed.stream.ids_at([other]) == {}
        ends = await testbed.stream.ends()
        assert sorted(ends.values()) == sorted(messages[-1].message_id for messages in put.values())
        assert ends.items() <= placed.items()

    async def test_a_stream_that_was_wiped_is_another_one(self, testbed: StreamTestbed) -> None:
        await testbed.put(0, 3)
        before = await testbed.stream.state()
        reader = await testbed.stream.subscribe("reader")
        await drain(reader, 3)
        await testbed.stream.wipe()
        after = await testbed.stream.state()
        assert after.created != before.created
        await told_of_its_end(reader)
        reader = await testbed.stream.subscribe("reader")
        if self.keeps_messages:
            assert after.messages == 0
            put = await testbed.put(0, 1)
            assert ids(await drain(reader, 1)) == ids(put)
        else:
            assert len(await drain(reader, 3)) == 3

    async def test_readers_are_those_who_wait_for_messages(self, testbed: StreamTestbed) -> None:
        one, other = await testbed.stream.subscribe("one", [0, 1]), await testbed.stream.subscribe("other", [1])
        await nothing_more(one)
        await nothing_more(other)
        both = {"one", "other"} if self.knows_readers else set()
        await comes_to(testbed.stream.readers, both)
        await other.close()
        await comes_to(testbed.stream.readers, both - {"other"})

    async def test_a_durable_that_was_forgotten_begins_anew(self, testbed: StreamTestbed) -> None:
        put = await testbed.put(0, 2)
        reader = await testbed.stream.subscribe("reader")
        await drain(reader, 2)
        await testbed.stream.forget("reader")
        await testbed.stream.forget("never-there")
        await told_of_its_end(reader)
        assert ids(await drain(await testbed.stream.subscribe("reader"), 2)) == ids(put)

    async def test_a_closed_subscription_gives_nothing(self, testbed: StreamTestbed) -> None:
        await testbed.put(0, 1)
        reader = await testbed.stream.subscribe("reader")
        await reader.close()
        with pytest.raises(NotFound):
            await reader.fetch(1, SOON)

    async def test_tenants_keep_their_names(self, testbed: StreamTestbed) -> None:
        put = [*await testbed.put(1, 1, "acme.health-1_x"), *await testbed.put(1, 1, "acme")]
        given = await drain(await testbed.stream.subscribe("reader"), 2)
        assert [each.message.tenant_id for each in given] == ["acme.health-1_x", "acme"]
        assert [each.message for each in given] == put

    async def test_a_name_that_no_durable_can_have_is_refused(self, testbed: StreamTestbed) -> None:
        for name in ("", "a.b", "a b", "x" * 129):
            with pytest.raises(InputError):
                await testbed.stream.subscribe(name)
