"""Hints: a cache that may vanish at any time, in memory and in a bucket of NATS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from noetl.kernel.stream.hints import Hints, MemoryHints, count
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.hints import NatsHints

Wipe = Callable[[], Awaitable[None]]


class HintsContract:
    """Tests for any store of hints."""

    async def test_a_note_comes_back_and_a_later_one_stands_over_it(self, hints: Hints) -> None:
        assert await hints.put("a", b"1")
        assert await hints.put("a", b"2")
        assert await hints.get("a") == b"2"
        assert (hints.misses, hints.errors) == (0, 0)

    async def test_a_note_that_is_not_there_is_a_miss(self, hints: Hints) -> None:
        assert await hints.get("never") is None
        await hints.put("a", b"1")
        await hints.forget("a")
        assert await hints.get("a") is None
        assert (hints.misses, hints.errors) == (2, 0)

    async def test_a_key_is_any_text(self, hints: Hints) -> None:
        keys = ["", ".", "a.b", "a%2Eb", "a=2Eb", "*", ">", "loop 7/Grüße", "k", "~"]
        for number, key in enumerate(keys):
            assert await hints.put(key, str(number).encode())
        assert [await hints.get(key) for key in keys] == [str(number).encode() for number in range(len(keys))]

    async def test_each_sum_of_a_counter_is_returned_once(self, hints: Hints) -> None:
        sums = await asyncio.gather(*(count(hints, "items") for _ in range(5)))
        told = [each for each in sums if each is not None]
        assert sorted(told) == list(range(1, len(told) + 1))
        assert len(told) == 5 - hints.errors
        assert await count(hints, "items", 10) == len(told) + 10

    async def test_of_several_who_change_a_note_at_once_none_is_lost(self, hints: Hints) -> None:
        told = await asyncio.gather(*(hints.change("who", lambda b, n=n: (b or b"") + n) for n in (b"a", b"b", b"c")))
        left = await hints.get("who")
        assert left is not None
        assert sorted(left) == sorted(b"abc")
        assert left in told
        assert hints.errors == 0

    async def test_a_counter_begins_where_it_is_told_to_and_nowhere_else(self, hints: Hints) -> None:
        assert await count(hints, "items", begin=100) == 101
        assert await count(hints, "items", begin=700) == 102
        await hints.forget("items")
        assert await count(hints, "items", begin=700) == 701

    async def test_a_counter_can_be_forgotten_and_begins_again(self, hints: Hints) -> None:
        assert await count(hints, "items", 3) == 3
        await hints.forget("items")
        assert await count(hints, "items") == 1

    async def test_a_store_that_is_wiped_midway_goes_on(self, hints: Hints, wipe: Wipe) -> None:
        assert await hints.put("a", b"1")
        assert await count(hints, "items", 5) == 5
        await wipe()
        assert await hints.get("a") is None
        assert hints.misses == 1
        assert await count(hints, "items") == 1
        await wipe()
        assert await hints.put("a", b"2")
        assert await hints.get("a") == b"2"
        assert hints.errors == 0


class TestMemoryHints(HintsContract):
    @pytest.fixture
    def hints(self) -> MemoryHints:
        return MemoryHints()

    @pytest.fixture
    def wipe(self, hints: MemoryHints) -> Wipe:
        async def wipe() -> None:
            hints.wipe()

        return wipe


@pytest.mark.service
class TestNatsHints(HintsContract):
    @pytest.fixture
    def hints(self, nats_connection: NatsConnection, stream_prefix: str) -> NatsHints:
        return NatsHints(nats_connection, f"{stream_prefix}_hints")

    @pytest.fixture
    def wipe(self, nats_connection: NatsConnection, stream_prefix: str) -> Wipe:
        async def wipe() -> None:
            await (await nats_connection.jetstream()).delete_key_value(f"{stream_prefix}_hints")

        return wipe


async def test_a_note_in_memory_is_gone_after_its_time() -> None:
    now = 0.0
    hints = MemoryHints(10, lambda: now)
    await hints.put("a", b"1")
    now = 9.9
    assert await hints.get("a") == b"1"
    now = 10.0
    assert await hints.get("a") is None


@pytest.mark.service
async def test_a_note_in_nats_is_gone_after_its_time(nats_connection: NatsConnection, stream_prefix: str) -> None:
    hints = NatsHints(nats_connection, f"{stream_prefix}_hints", kept_seconds=0.2)
    await hints.put("a", b"1")
    async with asyncio.timeout(10):
        while await hints.get("a") is not None:
            pass
    assert hints.errors == 0


async def test_a_server_that_is_away_is_a_miss_and_no_error_of_the_caller() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        connection = NatsConnection(f"nats://127.0.0.1:{taken.getsockname()[1]}")
        hints = NatsHints(connection)
        assert await hints.get("a") is None
        assert not await hints.put("a", b"1")
        assert await count(hints, "items") is None
        await hints.forget("a")
        assert (hints.misses, hints.errors) == (1, 4)
        await connection.close()
