"""The contract of fences on commands and frames as tests. A subclass gives the fixtures `ledger` and `harness`."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from noetl.errors import LeaseLost, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Fence, Transition
from noetl.testing.contracts.transitions import HELD, STALE
from noetl.testing.contracts.work_harness import WorkHarness
from noetl.testing.samples.executions import IDS, RUN_OUT, Driven, joined, one, token

FENCES: Final[tuple[tuple[float | None, int, str | None, str, bool], ...]] = (
    (30.0, 1, HELD, "held", True),
    (30.0, 2, HELD, "held", False),
    (30.0, 0, HELD, "held", False),
    (30.0, 1, STALE, "held", False),
    (30.0, 1, None, "held", False),
    (RUN_OUT, 1, HELD, "held", False),
    (None, 1, HELD, "held", False),
    (RUN_OUT, 1, HELD, "expired", True),
    (RUN_OUT, 2, HELD, "expired", False),
    (RUN_OUT, 1, STALE, "expired", False),
    (30.0, 1, HELD, "expired", False),
    (None, 1, HELD, "expired", False),
    (None, 1, None, "free", True),
    (None, 0, None, "free", False),
    (None, 2, None, "free", False),
    (30.0, 1, None, "free", False),
    (RUN_OUT, 1, None, "free", False),
)
"""How long a lease was given for, attempt and token of the fence, what it asks for, and whether it holds."""


def claims(run: Driven, count: int) -> list[Transition]:
    """Claims of one command, by so many workers."""
    return [run.claimed("a/1/0", token(), worker=f"w{number}") for number in range(count)]


def commits(run: Driven, frame: int, count: int) -> list[Transition]:
    """So many commits of one frame."""
    return [run.frame(frame, "frame.committed", run.frame_fence(frame, 1, HELD)) for _ in range(count)]


class FenceContract:
    """Tests for any ledger, which must be empty when a test begins."""

    @pytest.mark.parametrize("table", ["command", "frame"])
    async def test_a_fence_holds_only_for_the_lease_it_names(self, ledger: Ledger, table: str) -> None:
        for leased, attempt, given, mode, holds in FENCES:
            run = await Driven().begin(ledger, stage=True)
            frame, seconds = IDS.mint(), leased or 30.0
            if table == "command":
                lease = {"worker": "w1", "attempt": 1, "lease_token": HELD, "lease_seconds": seconds}
                await ledger.transact(run.issued("a/1/0", **lease))
                fence = run.fence("a/1/0", attempt, given, mode)
                if leased is None:
                    await ledger.transact(run.command("a/1/0", "command.abandoned"))
            else:
                await ledger.transact(run.dispatched(frame, HELD, seconds=seconds))
                fence = run.frame_fence(frame, attempt, given, mode)
                if leased is None:
                    await ledger.transact(run.frame(frame, "frame.abandoned"))
            fact = one(run.drafts.execution(run.execution_id, "step.entered", node_name="a"), fence)
            try:
                answer = await ledger.transact(fact)
            except LeaseLost:
                assert not holds, (leased, attempt, given, mode)
            else:
                assert holds, (leased, attempt, given, mode)
                assert answer[0].first_version > 0

    @pytest.mark.parametrize("table", ["command", "frame"])
    async def test_a_fence_on_what_does_not_exist_is_broken(self, ledger: Ledger, table: str) -> None:
        run = await Driven().begin(ledger)
        fence = Fence(table, run.execution_id, "1", 1, HELD)  # type: ignore[arg-type]
        with pytest.raises(LeaseLost):
            await ledger.transact(one(run.drafts.execution(run.execution_id, "step.entered", node_name="a"), fence))

    async def test_one_broken_fence_of_several_loses_the_change(self, ledger: Ledger) -> None:
        run = await Driven().begin(ledger, "a/1/0", "b/1/0")
        await ledger.transact(run.claimed("a/1/0", HELD))
        good, bad = run.fence("a/1/0", 1, HELD), run.fence("b/1/0", 1, HELD)
        fact = run.drafts.execution(run.execution_id, "step.entered", node_name="a")
        for fences in ((good, bad), (bad, good)):
            with pytest.raises(LeaseLost):
                await ledger.transact(one(fact, *fences))
        await ledger.transact(one(fact, good))

    async def test_a_lease_lasts_as_long_as_its_row_says(self, ledger: Ledger) -> None:
        """A claim takes the time its command was issued with, not the one it speaks of itself."""
        run = await Driven().begin(ledger)
        await ledger.transact(run.issued("a/1/0", lease_seconds=RUN_OUT))
        await ledger.transact(run.claimed("a/1/0", HELD))
        fact = run.drafts.execution(run.execution_id, "step.entered", node_name="a")
        with pytest.raises(LeaseLost):
            await ledger.transact(one(fact, run.fence("a/1/0", 1, HELD)))
        await ledger.transact(one(fact, run.fence("a/1/0", 1, HELD, "expired")))

    @pytest.mark.parametrize("processes", [1, 3])
    @pytest.mark.parametrize("what", ["claim", "commit", "complete"])
    async def test_of_many_concurrent_holders_of_one_lease_one_wins(
        self, ledger: Ledger, harness: WorkHarness, what: str, processes: int
    ) -> None:
        """INV-27: also when all of them are written by one statement, whose fences see what stood before it."""
        run = await Driven().begin(ledger, "a/1/0", stage=True)
        frame = IDS.mint()
        await ledger.transact(run.dispatched(frame, HELD))
        if what == "complete":
            await ledger.transact(run.claimed("a/1/0", HELD))
            held = run.fence("a/1/0", 1, HELD)
            tries = [run.command("a/1/0", "command.completed", held) for _ in range(20)]
        else:
            tries = claims(run, 20) if what == "claim" else commits(run, frame, 20)
        async with harness.other_process() as second, harness.other_process() as third:
            ledgers = (ledger, second, third)[:processes]
            sent = (ledgers[number % processes].transact(item) for number, item in enumerate(tries))
            answers = await asyncio.gather(*sent, return_exceptions=True)
        won = [number for number, answer in enumerate(answers) if isinstance(answer, tuple)]
        assert len(won) == 1
        assert all(isinstance(answer, LeaseLost) for number, answer in enumerate(answers) if number not in won)
        if what == "claim":
            winner = tries[won[0]].appends[0].drafts[0].meta
            assert await harness.rows("command", "worker", "lease_token") == [(winner["worker"], winner["lease_token"])]
        if what == "commit":
            assert await harness.rows("stage", "frames_open", "rows_done") == [(0, 10)]

    async def test_what_leaves_a_lease_as_it_is_does_not_break_it_for_others_of_the_statement(
        self, ledger: Ledger, harness: WorkHarness
    ) -> None:
        run = await Driven().begin(ledger, stage=True)
        frame = IDS.mint()
        await ledger.transact(run.dispatched(frame, HELD))
        fence = run.frame_fence(frame, 1, HELD)
        tries = [run.frame(frame, "frame.checkpointed", fence, context={"cursor": {"done": n}}) for n in range(5)]
        async with harness.one_statement():
            await asyncio.gather(*map(ledger.transact, [*tries, *commits(run, frame, 1)]))

    async def test_a_holder_that_was_refused_for_another_reason_takes_the_lease_from_nobody(
        self, ledger: Ledger
    ) -> None:
        run = await Driven().begin(ledger, "a/1/0")
        first, second = claims(run, 2)
        late = Transition((first.appends[0]._replace(expected_version=3),), first.fences)
        answers = await asyncio.gather(ledger.transact(late), ledger.transact(second), return_exceptions=True)
        assert [type(answer) for answer in answers] == [VersionConflict, tuple]

    @pytest.mark.parametrize("ending", ["execution.cancelled", "stage.closed", "command.failed"])
    async def test_an_end_earlier_in_the_statement_takes_the_leases_of_those_behind_it(
        self, ledger: Ledger, harness: WorkHarness, ending: str
    ) -> None:
        run, other = await Driven().begin(ledger, stage=True), await Driven().begin(ledger, stage=True)
        frame, following = IDS.mint(), IDS.mint()
        for each in (run, other):
            await ledger.transact(each.issued("a/1/0", stage_id=each.stage_id, loop_id=each.loop_id))
            await ledger.transact(each.dispatched(frame, HELD))
        ends = {
            "execution.cancelled": run.ended("execution.cancelled"),
            "stage.closed": run.closed(),
            "command.failed": run.command("a/1/0", "command.failed"),
        }[ending]
        behind = [
            run.claimed("a/1/0", token())
            if ending == "command.failed"
            else joined(
                each.frame(frame, "frame.committed", each.frame_fence(frame, 1, HELD)),
                each.dispatched(following, token(), index=1),
            )
            for each in (run, other)
        ]
        if ending == "command.failed":
            behind[1] = other.claimed("a/1/0", token())
        async with harness.one_statement():
            answers = await asyncio.gather(*map(ledger.transact, [ends, *behind]), return_exceptions=True)
        assert [type(answer) for answer in answers] == [tuple, LeaseLost, tuple]
        left = {row[0] for row in await harness.rows("frame", "execution_id")}
        mine, theirs = str(run.execution_id), str(other.execution_id)
        assert left == ({mine, theirs} if ending == "command.failed" else {theirs})

    async def test_a_frame_of_a_stage_that_is_closed_has_no_lease(self, ledger: Ledger, harness: WorkHarness) -> None:
        run = await Driven().begin(ledger, stage=True)
        frame = IDS.mint()
        await ledger.transact(run.closed())
        await ledger.transact(run.dispatched(frame, HELD))
        assert await harness.rows("frame", "frame_id") == []
        with pytest.raises(LeaseLost):
            await ledger.transact(*commits(run, frame, 1))
