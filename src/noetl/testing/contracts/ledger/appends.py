"""What every ledger must do with appends, as tests: numbers, order, expected versions, facts that stand once, refusals."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from noetl.errors import AlreadyRecorded, EventInvalid, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.model.event import INLINE_LIMIT, Draft
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.event_lists import everything, read
from noetl.testing.samples.drafts import Drafts


class AppendContract:
    """Tests for appending."""

    async def test_versions_and_positions_are_dense_and_in_the_order_given(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        """INV-02, INV-05."""
        run, loop = drafts.mint(), drafts.mint()
        items = drafts.loop_items(run, loop, 5)
        first = await ledger.append(items[0].stream, items[:3])
        second = await ledger.append(items[0].stream, items[3:])
        assert (first.first_version, first.last_version) == (1, 3)
        assert (second.first_version, second.last_version) == (4, 5)
        assert (first.first_position, first.last_position) == (1, 3)
        assert (second.first_position, second.last_position) == (4, 5)
        assert first.shard == second.shard == items[0].stream.shard
        assert first.event_ids == tuple(item.event_id for item in items[:3])
        assert not first.repeated
        events = await read(ledger, items[0].stream)
        assert [event.event_id for event in events] == [item.event_id for item in items]
        assert [event.stream_version for event in events] == [1, 2, 3, 4, 5]
        assert [event.position for event in events] == [1, 2, 3, 4, 5]

    async def test_streams_of_one_execution_share_positions_and_have_versions_of_their_own(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        run, loop = drafts.mint(), drafts.mint()
        started = await ledger.append(
            drafts.execution(run).stream, [drafts.execution(run), drafts.execution(run, "workflow.initialized")]
        )
        looped = await ledger.append(drafts.loop_item(run, loop, 0).stream, [drafts.loop_item(run, loop, 0)])
        assert started.shard == looped.shard
        assert (looped.first_version, looped.first_position) == (1, started.last_position + 1)

    async def test_an_event_comes_back_as_it_was_drafted(self, ledger: Ledger, drafts: Drafts) -> None:
        run = drafts.mint()
        ref = drafts.payload(rows=3, encoding="zstd", schema_digest="d1")
        draft = drafts.frame(
            run,
            drafts.mint(),
            drafts.mint(),
            "frame.committed",
            causation_id=drafts.mint(),
            correlation_id="c-1",
            parent_execution_id=drafts.mint(),
            catalog_id="catalog/π",
            node_name="Schritt 第一步 🚀",
            node_type="python",
            status="ok",
            loop_id=drafts.mint(),
            command_id="c1",
            shard_id="s1",
            current_index=0,
            current_item=[1, 2.5, None, True, {"ключ": "значение \U0001f9ea"}],
            payload_ref=ref,
            fields_ref=drafts.payload("cd" * 32),
            context={"empty": {}, "text": 'quotes " and \\u0000 as text'},
            result={"n": -0.125},
            error="E: ünïcode\nsecond line",
        )
        await ledger.append(draft.stream, [draft])
        (event,) = await read(ledger, draft.stream)
        assert {name: getattr(event, name) for name in Draft.__struct_fields__} == {
            name: getattr(draft, name) for name in Draft.__struct_fields__
        }

    @pytest.mark.parametrize("item", [0, False, "", [], {}, 0.0], ids=repr)
    async def test_an_empty_item_is_not_an_absent_item(self, ledger: Ledger, drafts: Drafts, item: object) -> None:
        draft = drafts.loop_item(drafts.mint(), drafts.mint(), 0, current_item=item)
        await ledger.append(draft.stream, [draft])
        (event,) = await read(ledger, draft.stream)
        assert event.current_item is not None
        assert event.current_item == item

    async def test_what_a_producer_or_a_reader_does_later_changes_no_event(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        meta = {"collection_size": 3, "mode": "sequential", "tags": ["a"]}
        draft = drafts.loop(drafts.mint(), drafts.mint(), "loop.started", meta=meta)
        await ledger.append(draft.stream, [draft])
        meta["tags"].append("producer")  # type: ignore[attr-defined]
        (event,) = await read(ledger, draft.stream)
        assert event.meta["tags"] == ["a"]
        event.meta["tags"].append("reader")
        assert [again.meta["tags"] for again in await read(ledger, draft.stream)] == [["a"]]

    async def test_time_never_runs_backwards_within_a_shard(self, ledger: Ledger, drafts: Drafts) -> None:
        """INV-10."""
        run, loop = drafts.mint(), drafts.mint()
        for item in drafts.loop_items(run, loop, 5):
            await ledger.append(item.stream, [item])
        times = [event.ingest_time for event in await everything(ledger)]
        assert len(times) == 5
        assert all(earlier <= later for earlier, later in pairwise(times))

    async def test_zero_expects_a_new_stream(self, ledger: Ledger, drafts: Drafts) -> None:
        first, second = drafts.loop_items(drafts.mint(), drafts.mint(), 2)
        await ledger.append(first.stream, [first], expected_version=0)
        with pytest.raises(VersionConflict) as refused:
            await ledger.append(second.stream, [second], expected_version=0)
        assert refused.value.details["version"] == 1
        await ledger.append(second.stream, [second], expected_version=1)

    @pytest.mark.parametrize("expected", [1, 3, 99])
    async def test_another_version_than_expected_writes_nothing(
        self, ledger: Ledger, drafts: Drafts, expected: int
    ) -> None:
        """INV-05."""
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 4)
        await ledger.append(items[0].stream, items[:2])
        head = await ledger.head()
        with pytest.raises(VersionConflict):
            await ledger.append(items[0].stream, items[2:], expected_version=expected)
        assert await ledger.head() == head
        assert len(await read(ledger, items[0].stream)) == 2
        follow = await ledger.append(items[0].stream, items[2:], expected_version=2)
        assert (follow.first_version, follow.first_position) == (3, 3)

    async def test_of_many_appends_that_expect_one_version_exactly_one_wins(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 16)
        tries = (ledger.append(item.stream, [item], expected_version=0) for item in items)
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(answer, VersionConflict) for answer in answers) == 15
        assert len(await read(ledger, items[0].stream)) == 1

    async def test_the_same_events_sent_again_stand_once_and_get_their_first_answer(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 3)
        first = await ledger.append(items[0].stream, items[:2], expected_version=0)
        await ledger.append(items[0].stream, items[2:])
        for expected in (None, 0):
            again = await ledger.append(items[0].stream, items[:2], expected_version=expected)
            assert (again.first_version, again.last_version) == (first.first_version, first.last_version)
            assert (again.first_position, again.event_ids) == (first.first_position, first.event_ids)
        assert len(await everything(ledger)) == 3

    async def test_a_once_only_fact_sent_again_under_its_own_id_is_recognised(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        done = drafts.loop(drafts.mint(), drafts.mint(), "loop.done")
        first = await ledger.append(done.stream, [done], expected_version=0)
        again = await ledger.append(done.stream, [done], expected_version=0)
        assert (again.first_version, again.event_ids) == (first.first_version, first.event_ids)
        assert len(await everything(ledger)) == 1

    async def test_an_event_id_cannot_name_two_events(self, ledger: Ledger, drafts: Drafts) -> None:
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 2)
        await ledger.append(items[0].stream, items[:1])
        with pytest.raises(EventInvalid, match="already used"):
            await ledger.append(items[0].stream, items)
        assert len(await everything(ledger)) == 1

    async def test_organizations_may_use_equal_ids_throughout(self, ledger: Ledger, drafts: Drafts) -> None:
        run, loop, event_id = drafts.mint(), drafts.mint(), drafts.mint()
        for scope in (drafts.scope, Scope(drafts.scope.tenant_id, "other"), Scope("other", "care")):
            items = Drafts(scope, drafts.mint).loop_items(run, loop, 1)
            items += [Drafts(scope, lambda: event_id).loop(run, loop, "loop.done")]
            assert (await ledger.append(items[0].stream, items, expected_version=0)).first_version == 1
            again = await ledger.append(items[0].stream, items, expected_version=0)
            assert again.event_ids == tuple(item.event_id for item in items)
            assert len(await everything(ledger, scope)) == 2

    @pytest.mark.parametrize("kind", ["loop.done", "loop.fanin.completed", "command.issued"])
    async def test_a_fact_that_may_stand_once_is_refused_the_second_time(
        self, ledger: Ledger, drafts: Drafts, kind: str
    ) -> None:
        first, second, other = _once_facts(drafts, kind)
        await ledger.append(first.stream, [first])
        with pytest.raises(AlreadyRecorded):
            await ledger.append(second.stream, [second])
        with pytest.raises(AlreadyRecorded):
            await ledger.append(second.stream, [second], expected_version=77)
        await ledger.append(other.stream, [other])
        assert len(await everything(ledger)) == 2

    @pytest.mark.parametrize("kind", ["loop.done", "loop.fanin.completed", "command.issued"])
    async def test_of_two_racing_facts_that_may_stand_once_one_stands(
        self, ledger: Ledger, drafts: Drafts, kind: str
    ) -> None:
        """INV-07."""
        first, second, other = _once_facts(drafts, kind)
        tries = (ledger.append(draft.stream, [draft]) for draft in (first, second, other))
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["Appended", "AlreadyRecorded", "Appended"]
        assert {event.event_id for event in await everything(ledger)} == {first.event_id, other.event_id}
        assert sum((await ledger.head()).positions) == 2

    async def test_one_append_cannot_hold_a_once_only_fact_twice(self, ledger: Ledger, drafts: Drafts) -> None:
        first, second, _ = _once_facts(drafts, "loop.done")
        with pytest.raises(AlreadyRecorded):
            await ledger.append(first.stream, [first, second])
        assert await everything(ledger) == []

    async def test_an_invalid_draft_is_refused_with_every_problem_and_takes_the_whole_append_along(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        """INV-04."""
        run, loop = drafts.mint(), drafts.mint()
        sound = drafts.loop_item(run, loop, 0)
        broken = drafts.loop_item(run, loop, 1, node_name=None, producer="", aggregate_type="frame")
        with pytest.raises(EventInvalid) as refused:
            await ledger.append(sound.stream, [sound, broken])
        for problem in ("event 1 (loop.item)", "node_name", "producer", "aggregate_type"):
            assert problem in refused.value.message
        assert await everything(ledger) == []

    async def test_a_draft_that_claims_what_does_not_hold_is_refused_in_tests(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        """INV-157."""
        run = drafts.mint()
        sound, unsound = drafts.execution(run), drafts.execution(run, producer="noetl://tenant/t/org/o/server")
        with pytest.raises(EventInvalid, match="the kind 'server' is not followed by an id"):
            await ledger.append(sound.stream, [sound, unsound])
        assert await everything(ledger) == []

    async def test_an_append_of_nothing_is_refused(self, ledger: Ledger, drafts: Drafts) -> None:
        with pytest.raises(EventInvalid, match="at least one"):
            await ledger.append(drafts.execution(drafts.mint()).stream, [])

    @pytest.mark.parametrize(
        "fields",
        [
            {"node_name": "a\x00b"},
            {"error": "\x00"},
            {"node_name": "\ud800"},
            {"current_item": "a\x00b"},
            {"current_item": {"\x00": 1}},
            {"context": {"deep": [{"x": "\x00"}]}},
            {"current_item": float("nan")},
            {"current_item": 2**53},
            {"current_item": 1e17},
            {"context": {"cursor": [{"at": -9007199254740992.0}]}},
            {"current_item": "\udfff"},
            {"current_index": 2**63},
            {"causation_id": 2**63},
            {"causation_id": 0},
            {"node_name": "n" * 513},
            {"command_id": "c" * 10_000},
        ],
        ids=lambda fields: ascii(fields)[:40],
    )
    async def test_what_no_row_can_carry_is_refused(
        self, ledger: Ledger, drafts: Drafts, fields: dict[str, object]
    ) -> None:
        run, loop = drafts.mint(), drafts.mint()
        broken = drafts.loop_item(run, loop, 1, **fields)
        for key in (None, "k"):
            keyed = drafts.again(broken, idempotency_key=key)
            with pytest.raises(EventInvalid):
                await ledger.append(keyed.stream, [keyed])
        assert await everything(ledger) == []

    async def test_values_up_to_the_limit_are_taken_and_one_byte_more_is_refused_with_the_way_out(
        self, ledger: Ledger, drafts: Drafts
    ) -> None:
        """INV-09."""
        run, loop = drafts.mint(), drafts.mint()
        fitting = drafts.loop_item(run, loop, 0, current_item="ü" * (INLINE_LIMIT // 2 - 1))
        large = drafts.loop_item(run, loop, 1, current_item="ü" * (INLINE_LIMIT // 2 - 1) + "x")
        with pytest.raises(EventInvalid) as refused:
            await ledger.append(large.stream, [large])
        assert refused.value.hint == "externalize large fields to the payload store first"
        await ledger.append(fitting.stream, [fitting])
        (event,) = await read(ledger, fitting.stream)
        assert event.current_item == fitting.current_item

    async def test_64_tasks_on_one_stream_leave_no_gap(self, ledger: Ledger, drafts: Drafts) -> None:
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 64)
        answers = await asyncio.gather(*(ledger.append(item.stream, [item]) for item in items))
        assert sorted(answer.first_version for answer in answers) == list(range(1, 65))
        events = await read(ledger, items[0].stream)
        assert [event.position for event in events] == list(range(1, 65))
        assert {event.event_id for event in events} == {item.event_id for item in items}

    async def test_64_tasks_on_many_streams_leave_no_gap(self, ledger: Ledger, drafts: Drafts) -> None:
        """INV-02."""
        groups = [drafts.loop_items(drafts.mint(), drafts.mint(), 3) for _ in range(64)]
        answers = await asyncio.gather(*(ledger.append(group[0].stream, group) for group in groups))
        assert {answer.first_version for answer in answers} == {1}
        head = await ledger.head()
        for shard, last in enumerate(head.positions):
            given = sorted(answer.first_position for answer in answers if answer.shard == shard)
            assert given == list(range(1, last, 3))
        assert sum(head.positions) == 192

    async def test_a_long_lived_stream_takes_events_of_many_executions(self, ledger: Ledger, drafts: Drafts) -> None:
        runs = [drafts.mint() for _ in range(3)]
        for number, run in enumerate(runs):
            draft = drafts.business("dataset/patients", run)
            answer = await ledger.append(draft.stream, [draft], expected_version=number)
            assert answer.shard == draft.stream.shard
        events = await read(ledger, drafts.scope.stream("dataset/patients"))
        assert [(event.execution_id, event.stream_version) for event in events] == list(
            zip(runs, [1, 2, 3], strict=True)
        )


def _once_facts(drafts: Drafts, kind: str) -> tuple[Draft, Draft, Draft]:
    """Make a fact, the same fact once more, and the same fact of another execution."""
    run, other, loop = drafts.mint(), drafts.mint(), drafts.mint()
    if kind == "command.issued":
        made = [drafts.command(each, "c1") for each in (run, run, other)]
    else:
        made = [drafts.loop(each, loop, kind) for each in (run, run, other)]
    return made[0], made[1], made[2]
