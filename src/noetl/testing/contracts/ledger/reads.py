"""What every ledger must do for readers, as tests: bounds, scopes, heads, subscriptions and read tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest

from noetl.errors import Unavailable
from noetl.kernel.ledger.port import Ledger
from noetl.model.event import Event
from noetl.model.mark import Mark, ReadToken, execution_token
from noetl.model.stream import SHARD_COUNT, Scope
from noetl.testing.contracts.ledger.event_lists import everything, read, read_execution, read_shard
from noetl.testing.samples.drafts import Drafts

PATIENCE = 20.0


async def taken(batches: AsyncIterator[list[Event]], count: int) -> list[Event]:
    """Take batches until there are that many events."""
    events: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while len(events) < count:
            batch = await anext(batches)
            assert len({event.shard for event in batch}) == 1
            events += batch
    return events


class ReadContract:
    """Tests for reading and subscribing."""

    @pytest.mark.parametrize(("first", "given"), [(1, [1, 2, 3]), (0, [1, 2, 3]), (3, [3]), (4, [])])
    async def test_a_stream_is_read_from_a_version_on(
        self, ledger: Ledger, drafts: Drafts, first: int, given: list[int]
    ) -> None:
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 3)
        await ledger.append(items[0].stream, items)
        assert [event.stream_version for event in await read(ledger, items[0].stream, first)] == given

    async def test_a_stream_nobody_wrote_to_is_empty(self, ledger: Ledger, drafts: Drafts) -> None:
        assert await read(ledger, drafts.execution(drafts.mint()).stream) == []
        assert await read_execution(ledger, drafts.scope, drafts.mint()) == []

    async def test_an_execution_leaves_out_streams_that_outlive_it(self, ledger: Ledger, drafts: Drafts) -> None:
        """Also those that happen to lie in the same shard."""
        run = drafts.mint()
        own = drafts.execution(run)
        neighbours = (f"dataset/{number}" for number in range(1_000))
        near = next(name for name in neighbours if drafts.scope.stream(name).shard == own.stream.shard)
        await ledger.append(own.stream, [own])
        foreign = drafts.business(near, run)
        await ledger.append(foreign.stream, [foreign])
        assert [event.event_id for event in await read_execution(ledger, drafts.scope, run)] == [own.event_id]

    async def test_an_execution_is_all_its_streams_by_position(self, ledger: Ledger, drafts: Drafts) -> None:
        run, other = drafts.mint(), drafts.mint()
        loop, stage, frame = drafts.mint(), drafts.mint(), drafts.mint()
        sent = [
            drafts.execution(run),
            drafts.loop_item(run, loop, 0),
            drafts.loop_item(other, loop, 0),
            drafts.stage(run, stage),
            drafts.frame(run, stage, frame),
            drafts.loop_item(run, loop, 1),
            drafts.execution(run, "playbook.completed"),
        ]
        for draft in sent:
            await ledger.append(draft.stream, [draft])
        events = await read_execution(ledger, drafts.scope, run)
        assert [event.event_id for event in events] == [draft.event_id for draft in sent if draft.execution_id == run]
        positions = [event.position for event in events]
        assert positions == sorted(set(positions))
        bounded = await read_execution(ledger, drafts.scope, run, positions[1], positions[3])
        assert [event.position for event in bounded] == positions[1:4]
        assert await read_execution(ledger, drafts.scope, run, positions[-1] + 1) == []
        assert await read_execution(ledger, drafts.scope, run, positions[3], positions[1]) == []

    @pytest.mark.parametrize(
        ("first", "last", "given"), [(1, None, 5), (0, 5, 5), (2, 4, 3), (5, 9, 1), (6, None, 0), (1, 0, 0)]
    )
    async def test_a_shard_is_read_within_both_bounds(
        self, ledger: Ledger, drafts: Drafts, first: int, last: int | None, given: int
    ) -> None:
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 5)
        await ledger.append(items[0].stream, items)
        events = await read_shard(ledger, items[0].stream.shard, first, to_position=last)
        assert [event.position for event in events] == list(range(max(first, 1), max(first, 1) + given))

    async def test_a_scope_hides_the_events_of_others(self, ledger: Ledger, drafts: Drafts) -> None:
        scopes = [drafts.scope, Scope(drafts.scope.tenant_id, "other"), Scope("other", drafts.scope.organization_id)]
        for scope in scopes:
            draft = Drafts(scope, drafts.mint).business("dataset/x", drafts.mint())
            await ledger.append(draft.stream, [draft])
        for scope in scopes:
            assert {event.stream.scope for event in await everything(ledger, scope)} == {scope}
            assert len(await read(ledger, scope.stream("dataset/x"))) == 1
        assert len(await everything(ledger)) == 3

    async def test_the_head_is_the_last_position_of_each_shard(self, ledger: Ledger, drafts: Drafts) -> None:
        assert await ledger.head() == Mark.zero()
        expected = Mark.zero()
        for _ in range(8):
            items = drafts.loop_items(drafts.mint(), drafts.mint(), 2)
            answer = await ledger.append(items[0].stream, items)
            expected = expected.with_position(answer.shard, answer.last_position)
            assert await ledger.head() == expected

    async def test_a_subscription_gives_everything_after_its_cursor_in_order(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        runs = [(drafts.mint(), drafts.mint()) for _ in range(20)]
        for run, loop in runs:
            items = drafts.loop_items(run, loop, 2)
            await ledger.append(items[0].stream, items)
        cursor = await ledger.head()
        for run, loop in runs:
            item = drafts.loop_item(run, loop, 2)
            await ledger.append(item.stream, [item])
        async with aclosing(ledger.subscribe(cursor)) as batches:  # type: ignore[type-var]
            events = await taken(batches, 20)
        for shard in range(SHARD_COUNT):
            seen = [event.position for event in events if event.shard == shard]
            assert seen == list(range(cursor.positions[shard] + 1, cursor.positions[shard] + 1 + len(seen)))
        assert len(events) == 20

    async def test_a_subscription_wakes_for_new_events(self, ledger: Ledger, drafts: Drafts) -> None:
        run, loop = drafts.mint(), drafts.mint()
        async with aclosing(ledger.subscribe(await ledger.head())) as batches:  # type: ignore[type-var]
            for index in range(3):
                waiting = asyncio.ensure_future(taken(batches, 1))
                await asyncio.sleep(0)
                item = drafts.loop_item(run, loop, index)
                await ledger.append(item.stream, [item])
                assert [event.event_id for event in await waiting] == [item.event_id]

    async def test_a_subscription_heeds_its_shards_and_its_scope(self, ledger: Ledger, drafts: Drafts) -> None:
        stranger = Drafts(Scope("other", "other"), drafts.mint)
        mine = [drafts.execution(drafts.mint()) for _ in range(40)]
        for draft in mine:
            foreign = stranger.execution(drafts.mint())
            await ledger.append(foreign.stream, [foreign])
            await ledger.append(draft.stream, [draft])
        shards = sorted({draft.stream.shard for draft in mine})[:2]
        wanted = {draft.event_id for draft in mine if draft.stream.shard in shards}
        async with aclosing(ledger.subscribe(Mark.zero(), scope=drafts.scope, shards=shards)) as batches:  # type: ignore[type-var]
            events = await taken(batches, len(wanted))
            assert {event.event_id for event in events} == wanted
            last = next(draft for draft in mine if draft.stream.shard == shards[0])
            more = drafts.execution(last.execution_id, "playbook.completed")
            await ledger.append(more.stream, [more])
            assert [event.event_id for event in await taken(batches, 1)] == [more.event_id]

    async def test_a_reader_that_follows_writers_misses_nothing_and_sees_nothing_twice(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        items = [drafts.loop_item(drafts.mint(), drafts.mint(), 0) for _ in range(64)]
        async with aclosing(ledger.subscribe(Mark.zero())) as batches:  # type: ignore[type-var]
            reading = asyncio.ensure_future(taken(batches, 64))
            await asyncio.gather(*(ledger.append(item.stream, [item]) for item in items))
            events = await reading
        assert sorted(event.event_id for event in events) == sorted(item.event_id for item in items)
        assert (await ledger.head()).positions == tuple(
            sum(event.shard == shard for event in events) for shard in range(SHARD_COUNT)
        )

    async def test_what_a_token_stands_for_can_be_read_once_it_is_covered(self, ledger: Ledger, drafts: Drafts) -> None:
        run = drafts.mint()
        first, second = drafts.execution(run), drafts.loop_item(run, drafts.mint(), 0)
        await ledger.append(first.stream, [first])
        await ledger.covered(ReadToken(run, first.event_id, first.stream.shard), drafts.scope, 30.0)
        await ledger.covered(execution_token(run, 1), drafts.scope, 30.0)
        token = ReadToken(run, second.event_id, second.stream.shard)
        waiting = asyncio.ensure_future(ledger.covered(token, drafts.scope, 30.0))
        await ledger.append(second.stream, [second])
        await waiting
        assert [event.event_id for event in await read(ledger, second.stream)] == [second.event_id]

    async def test_a_token_for_what_is_not_there_is_not_covered(self, ledger: Ledger, drafts: Drafts) -> None:
        draft, other = drafts.execution(drafts.mint()), Scope(drafts.scope.tenant_id, "other")
        await ledger.append(draft.stream, [draft])
        token = ReadToken(draft.execution_id, draft.event_id, draft.stream.shard)
        for scope, asked in ((other, token), (drafts.scope, msgspec.structs.replace(token, event_id=1))):
            with pytest.raises(Unavailable):
                await ledger.covered(asked, scope, 0.01)
