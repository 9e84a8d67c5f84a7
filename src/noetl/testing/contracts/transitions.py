"""The contract of transitions as tests: all or nothing, in order, repeated without harm, seen by nobody else.

A subclass gives the fixtures `ledger` and `harness`. The leases that transitions rely on are in `fence_contract`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from noetl.errors import AlreadyRecorded, KeyReused, LeaseLost, NoetlError, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue import ENDING
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.contracts.ledger.reads import taken
from noetl.testing.contracts.work_harness import WORK_TABLES, WorkHarness
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.executions import IDS, NEIGHBOUR, RUN_OUT, SCOPE, Driven, joined, token

HELD, STALE = "3b241101-e2bb-4255-8caf-4136c566a962", "9f6c2d1e-0b52-4a53-9d0e-6a1f0c3b7d44"


class TransitionContract:
    """Tests for any ledger, which must be empty when a test begins."""

    async def test_a_change_stands_in_all_its_streams_or_in_none(self, ledger: Ledger, harness: WorkHarness) -> None:
        """INV-04."""
        run = await Driven().begin(ledger, "a/1/0")
        before = await harness.stored()
        change = joined(run.opened(), run.issued("b/1/0"), run.command("a/1/0", "command.completed"))
        refused = Transition((*change.appends[:2], change.appends[2]._replace(expected_version=7)))
        with pytest.raises(VersionConflict):
            await ledger.transact(refused)
        assert await harness.stored() == before
        answers = await ledger.transact(change)
        assert [answer.first_version for answer in answers] == [1, 3, 1]
        assert await harness.rows("command", "command_id") == [("b/1/0",)]
        assert await harness.rows("stage", "stage_id") == [(str(run.stage_id),)]

    async def test_answers_stand_in_the_order_of_the_appends(self, ledger: Ledger) -> None:
        run = await Driven().begin(ledger)
        change = joined(run.opened(), run.issued("z/1/0"), run.command("a/1/0", "command.claimed"))
        answers = await ledger.transact(change)
        expected = [tuple(draft.event_id for draft in append.drafts) for append in change.appends]
        assert [answer.event_ids for answer in answers] == expected

    async def test_parts_of_a_change_in_one_shard_are_numbered_one_after_another(self, ledger: Ledger) -> None:
        run = await Driven().begin(ledger)
        answers = await ledger.transact(joined(run.opened(), run.issued("a/1/0", "a/1/1"), run.dispatched(7, HELD)))
        assert [(answer.first_position, answer.last_position) for answer in answers] == [(2, 2), (3, 4), (5, 5)]
        events = await everything(ledger)
        assert [event.position for event in events] == [1, 2, 3, 4, 5]
        assert len({event.ingest_time for event in events[1:]}) == 1

    async def test_a_change_that_is_refused_leaves_others_of_its_statement_standing(
        self, ledger: Ledger, harness: WorkHarness
    ) -> None:
        """INV-29."""
        runs = [await Driven().begin(ledger, "a/1/0") for _ in range(24)]
        tries = []
        for number, run in enumerate(runs):
            ends = run.command("a/1/0", "command.completed")
            late = ends.appends[0]._replace(expected_version=9)
            lost = run.fence("a/1/0", 5, token())
            tries.append(
                (
                    joined(ends, run.opened()),
                    Transition((late, *run.opened().appends)),
                    Transition((*ends.appends, *run.opened().appends), (lost,)),
                )[number % 3]
            )
        async with harness.one_statement():
            answers = await asyncio.gather(*map(ledger.transact, tries), return_exceptions=True)
        assert [type(answer) for answer in answers] == [tuple, VersionConflict, LeaseLost] * 8
        assert len(await harness.rows("stage", "stage_id")) == 8
        assert len(await harness.rows("command", "command_id", "execution_id")) == 16

    async def test_a_fact_that_stands_already_is_refused_with_its_change_alone(
        self, ledger: Ledger, harness: WorkHarness
    ) -> None:
        runs = [await Driven().begin(ledger, "a/1/0") for _ in range(6)]
        tries = [joined(run.opened(), run.issued("ab"[number % 2] + "/1/0")) for number, run in enumerate(runs)]
        answers = await asyncio.gather(*map(ledger.transact, tries), return_exceptions=True)
        assert [type(answer) for answer in answers] == [AlreadyRecorded, tuple] * 3
        assert len(await harness.rows("stage", "stage_id")) == 3

    async def test_a_key_is_used_up_by_a_change_that_stands_and_by_no_other(self, ledger: Ledger) -> None:
        """INV-06, INV-32: whoever reports the end of work a second time is refused."""
        run = await Driven().begin(ledger, "a/1/0")
        first, again = (
            Transition((Append(draft.stream, [draft]),))
            for draft in (
                run.drafts.command(
                    run.execution_id, "a/1/0", "command.completed", idempotency_key="k", meta={"attempt": 1}
                )
                for _ in range(2)
            )
        )
        with pytest.raises(VersionConflict):
            await ledger.transact(Transition((first.appends[0]._replace(expected_version=9),)))
        answers = await ledger.transact(first)
        with pytest.raises(KeyReused):
            await ledger.transact(again)
        (repeated,) = await ledger.transact(first)
        assert repeated.repeated
        assert (repeated.first_position, repeated.event_ids) == (answers[0].first_position, answers[0].event_ids)

    async def test_a_repeated_change_gets_the_first_answer(self, ledger: Ledger, harness: WorkHarness) -> None:
        """INV-32, INV-04: the same event ids, as after a lost connection, whether keys, versions or leases would refuse them."""
        run = await Driven().begin(ledger, "a/1/0", stage=True)
        frame, following, held = IDS.mint(), IDS.mint(), token()
        versioned = run.issued("b/1/0")
        changes = [
            Transition((versioned.appends[0]._replace(expected_version=2),)),
            run.claimed("a/1/0", held),
            run.dispatched(frame, HELD),
            joined(
                run.frame(frame, "frame.committed", run.frame_fence(frame, 1, HELD)),
                run.dispatched(following, token(), index=1),
            ),
            joined(run.command("a/1/0", "command.completed", run.fence("a/1/0", 1, held)), run.closed()),
        ]
        first = [await ledger.transact(change) for change in changes]
        stored, head = await harness.stored(), await ledger.head()
        async with harness.other_process() as other:
            again = [await other.transact(change) for change in changes]
            together = await asyncio.gather(*map(other.transact, changes))
        for answers in (again, together):
            assert [[(a.first_position, a.event_ids) for a in each] for each in answers] == [
                [(a.first_position, a.event_ids) for a in each] for each in first
            ]
        assert await harness.stored() == stored
        assert await ledger.head() == head

    async def test_one_change_that_makes_no_row_does_not_fail_its_statement(
        self, ledger: Ledger, harness: WorkHarness
    ) -> None:
        runs = [await Driven().begin(ledger, stage=True) for _ in range(3)]
        bad = joined(runs[1].dispatched(7, HELD), runs[1].issued("a/1/0", worker="w", lease_token="no uuid"))  # noqa: S106
        tries = [runs[0].issued("a/1/0"), bad, runs[2].issued("a/1/0")]
        answers = await asyncio.gather(*map(ledger.transact, tries), return_exceptions=True)
        assert [isinstance(answer, NoetlError) for answer in answers] == [False, True, False]
        assert await harness.rows("frame", "frame_id") == []
        assert await harness.rows("stage", "frames_minted") == [(0,), (0,), (0,)]

    async def test_an_append_of_a_change_keeps_its_expected_version(self, ledger: Ledger) -> None:
        """INV-28."""
        run = await Driven().begin(ledger)
        issued = run.issued("a/1/0").appends[0]
        with pytest.raises(VersionConflict, match="is at version 1, not at 4"):
            await ledger.transact(Transition((Append(issued.stream, issued.drafts, 4),)))

    async def test_a_plain_append_changes_no_row(self, ledger: Ledger, harness: WorkHarness) -> None:
        drafts = Drafts(SCOPE, IDS.mint)
        draft = drafts.command(IDS.mint(), "c1")
        await ledger.append(draft.stream, [draft])
        assert await harness.rows("command", "command_id") == []
        assert len(await everything(ledger)) == 1

    @pytest.mark.parametrize("kind", sorted(ENDING))
    async def test_an_end_leaves_no_row_of_its_execution(self, ledger: Ledger, harness: WorkHarness, kind: str) -> None:
        """INV-30."""
        run, other = [await Driven().begin(ledger, "a/1/0", "a/1/1", stage=True) for _ in range(2)]
        for each in (run, other):
            await ledger.transact(each.dispatched(IDS.mint(), token()))
        await ledger.transact(run.ended(kind))
        for table in WORK_TABLES:
            assert {row[0] for row in await harness.rows(table, "execution_id")} == {str(other.execution_id)}, table

    async def test_a_closed_stage_takes_its_frames_along_and_no_others(
        self, ledger: Ledger, harness: WorkHarness
    ) -> None:
        run = await Driven().begin(ledger, stage=True)
        await ledger.transact(run.dispatched(IDS.mint(), token()))
        closing, run.stage_id = run.closed(), IDS.mint()
        await ledger.transact(run.opened())
        await ledger.transact(run.dispatched(IDS.mint(), token()))
        await ledger.transact(closing)
        assert await harness.rows("stage", "stage_id") == [(str(run.stage_id),)]
        assert await harness.rows("frame", "stage_id") == [(str(run.stage_id),)]

    async def test_counters_of_a_stage_add_up_under_concurrency(self, ledger: Ledger, harness: WorkHarness) -> None:
        run = await Driven().begin(ledger, stage=True)

        async def work(through: Ledger, number: int) -> None:
            for turn in range(8):
                frame, held = IDS.mint(), token()
                await through.transact(run.dispatched(frame, held, index=number * 8 + turn))
                fence = run.frame_fence(frame, 1, held)
                if turn == 0:
                    await through.transact(run.frame(frame, "frame.failed", fence))
                else:
                    meta = {"failed_count": 3, "swallowed": 2}
                    context = {"set": {f"worker{number}": turn}}
                    await through.transact(run.frame(frame, "frame.committed", fence, meta=meta, context=context))

        async with harness.other_process() as second, harness.other_process() as third:
            ledgers = (ledger, second, third)
            await asyncio.gather(*(work(ledgers[number % 3], number) for number in range(12)))
        columns = ["frames_minted", "frames_open", "frames_failed", "rows_done", "rows_failed", "errors", "next_index"]
        assert await harness.rows("stage", *columns) == [(96, 0, 12, 84 * 7, 84 * 3 + 120, 168, 960)]
        ((ctx,),) = await harness.rows("stage", "ctx")
        assert list(ctx.values()).count(7) == 12

    async def test_equal_ids_in_two_organizations_are_two_leases(self, ledger: Ledger, harness: WorkHarness) -> None:
        """INV-22: neither a fence nor a change nor an end reaches beyond its organization."""
        mine = await Driven().begin(ledger, "a/1/0", stage=True)
        theirs = Driven(NEIGHBOUR, mine.execution_id)
        theirs.stage_id, frame = mine.stage_id, IDS.mint()
        await theirs.begin(ledger, "a/1/0", stage=True)
        for run in (mine, theirs):
            await ledger.transact(run.dispatched(frame, HELD if run is mine else STALE))
        with pytest.raises(LeaseLost):
            await ledger.transact(theirs.frame(frame, "frame.committed", theirs.frame_fence(frame, 1, HELD)))
        await ledger.transact(theirs.claimed("a/1/0", HELD))
        assert await harness.rows("command", "status") == [("PENDING",)]
        await ledger.transact(theirs.ended())
        for table in WORK_TABLES:
            assert len(await harness.rows(table, "execution_id")) == 1, table
            assert await harness.rows(table, "execution_id", scope=NEIGHBOUR) == [], table

    async def test_a_lost_lease_writes_nothing(self, ledger: Ledger, harness: WorkHarness) -> None:
        """INV-27."""
        run = await Driven().begin(ledger, "a/1/0", stage=True)
        frame = IDS.mint()
        await ledger.transact(run.dispatched(frame, HELD, seconds=RUN_OUT))
        before, head = await harness.stored(), await ledger.head()
        fence = run.frame_fence(frame, 1, HELD)
        change = joined(
            run.frame(frame, "frame.committed", fence),
            run.dispatched(IDS.mint(), token(), index=1),
            run.issued("b/1/0"),
        )
        with pytest.raises(LeaseLost, match="belongs to another holder now, or ran out"):
            await ledger.transact(change)
        assert await harness.stored() == before
        assert await ledger.head() == head

    async def test_a_subscription_wakes_for_a_change(self, ledger: Ledger) -> None:
        run = await Driven().begin(ledger)
        change = run.issued("a/1/0")
        async with aclosing(ledger.subscribe(await ledger.head())) as batches:  # type: ignore[type-var]
            waiting = asyncio.ensure_future(taken(batches, 1))
            await asyncio.sleep(0)
            await ledger.transact(change)
            (event,) = await waiting
        assert event.event_id == change.appends[0].drafts[0].event_id
