"""The contract of fences on tasks and jobs as tests: of those who want the same, one gets it, at once or one by one.

A subclass gives the fixtures `ledger` and `harness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from noetl.errors import Conflict, LeaseLost, NoetlError
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Fence, Transition
from noetl.testing.contracts.work_harness import WorkHarness
from noetl.testing.samples.executions import joined, one, token
from noetl.testing.samples.pipelines import Piped


async def sent(ledger: Ledger, *changes: Transition) -> list[str]:
    """Send changes together; tell of each whether it stands."""
    answers = await asyncio.gather(*(ledger.transact(change) for change in changes), return_exceptions=True)
    for answer in answers:
        assert not isinstance(answer, BaseException) or isinstance(answer, NoetlError), answer
    return [
        "lost" if isinstance(answer, LeaseLost) else "no" if isinstance(answer, Exception) else "yes"
        for answer in answers
    ]


class TaskFenceContract:
    """Tests for any ledger, which must be empty when a test begins."""

    @pytest.fixture
    async def dag(self, ledger: Ledger) -> Piped:
        """A deployed DAG."""
        dag = Piped()
        await ledger.transact(dag.deployed())
        return dag

    @pytest.fixture
    async def elsewhere(self, harness: WorkHarness) -> AsyncIterator[Ledger]:
        """The ledger of another process."""
        async with harness.other_process() as ledger:
            yield ledger

    async def test_a_held_lease_ends_its_task_once(self, ledger: Ledger, dag: Piped) -> None:
        """INV-27."""
        held = token()
        await ledger.transact(dag.created("a"))
        await ledger.transact(dag.claimed("a", held))
        for wrong in (dag.fence("a", 1, token()), dag.fence("a", 2, held), dag.fence("b", 1, held)):
            assert await sent(ledger, dag.task("a", "task.completed", wrong)) == ["lost"]
        assert await sent(ledger, dag.task("a", "task.completed", dag.fence("a", 1, held))) == ["yes"]
        assert await sent(ledger, dag.task("a", "task.failed", dag.fence("a", 1, held))) == ["lost"]

    async def test_a_lease_that_ran_out_belongs_to_the_reaper(self, ledger: Ledger, dag: Piped) -> None:
        held = token()
        await ledger.transact(dag.created("a"))
        await ledger.transact(dag.claimed("a", held, seconds=-1.0))
        assert await sent(ledger, dag.task("a", "task.completed", dag.fence("a", 1, held))) == ["lost"]
        assert await sent(ledger, dag.task("a", "task.abandoned", dag.fence("a", 1, held, "expired"))) == ["yes"]
        await ledger.transact(dag.claimed("a", held, 2))
        again = dag.task("a", "task.abandoned", dag.fence("a", 2, held, "expired"), meta={"attempt": 2})
        assert await sent(ledger, again) == ["lost"]

    async def test_a_task_is_free_once_its_time_has_come(self, ledger: Ledger, dag: Piped) -> None:
        held = token()
        await ledger.transact(dag.created("a"))
        await ledger.transact(dag.claimed("a", held))
        assert await sent(ledger, dag.claimed("a")) == ["lost"]
        later = dag.task("a", "task.attempt_failed", dag.fence("a", 1, held), meta={"delay_seconds": 600})
        await ledger.transact(later)
        assert await sent(ledger, dag.claimed("a", attempt=2)) == ["lost"]
        await ledger.transact(dag.task("a", "task.retried", meta={"extra_attempts": 0}))
        assert await sent(ledger, dag.claimed("a", held, attempt=2)) == ["yes"]
        await ledger.transact(dag.task("a", "task.failed", dag.fence("a", 2, held), meta={"attempt": 2}))
        assert await sent(ledger, dag.claimed("a", attempt=3)) == ["lost"]

    async def test_open_and_ended_are_told_apart(self, ledger: Ledger, dag: Piped) -> None:
        await ledger.transact(dag.created("a"))
        retried = dag.task("a", "task.retried", dag.fence("a", mode="ended"), meta={"extra_attempts": 1})
        assert await sent(ledger, retried) == ["lost"]
        assert await sent(ledger, dag.task("a", "task.cancel_requested", dag.fence("a", mode="open"))) == ["yes"]
        await ledger.transact(dag.task("a", "task.cancelled", dag.fence("a", 0, mode="free"), meta={"attempt": 0}))
        assert await sent(ledger, dag.task("a", "task.cancel_requested", dag.fence("a", mode="open"))) == ["lost"]
        again = dag.task("a", "task.retried", dag.fence("a", mode="ended"), meta={"extra_attempts": 1})
        assert await sent(ledger, again) == ["yes"]

    async def test_of_many_claims_in_one_call_one_wins(self, ledger: Ledger, harness: WorkHarness, dag: Piped) -> None:
        """INV-50."""
        await ledger.transact(dag.created("a"))
        answers = await sent(ledger, *(dag.claimed("a") for _ in range(5)))
        assert sorted(answers) == ["lost"] * 4 + ["yes"]
        assert await harness.rows("task", "status", "attempt") == [("Running", 1)]

    @pytest.mark.parametrize("claim_first", [True, False])
    async def test_claiming_and_cancelling_in_one_call_do_not_both_win(
        self, ledger: Ledger, dag: Piped, *, claim_first: bool
    ) -> None:
        """INV-50."""
        await ledger.transact(dag.created("a"))
        cancel = dag.task("a", "task.cancelled", dag.fence("a", 0, mode="free"), meta={"attempt": 0})
        changes = [dag.claimed("a"), cancel]
        answers = await sent(ledger, *(changes if claim_first else changes[::-1]))
        assert answers == ["yes", "lost"]

    async def test_what_does_not_change_the_lease_lets_its_holder_go_on(self, ledger: Ledger, dag: Piped) -> None:
        held = token()
        await ledger.transact(dag.created("a"))
        await ledger.transact(dag.claimed("a", held))
        fence = dag.fence("a", 1, held)
        started = dag.task("a", "task.started", fence, meta={"application_id": "x"})
        state = Transition(dag.state("k", 1).appends, (fence,))
        assert await sent(ledger, started, state, dag.task("a", "task.completed", fence)) == ["yes"] * 3

    async def test_the_end_of_a_run_takes_no_lease_from_its_tasks(self, ledger: Ledger, dag: Piped) -> None:
        held = token()
        await ledger.transact(dag.created("a"))
        await ledger.transact(dag.claimed("a", held))
        ended = one(dag.drafts.execution(dag.execution_id, "execution.cancelled"))
        assert await sent(ledger, ended, dag.task("a", "task.completed", dag.fence("a", 1, held))) == ["yes", "yes"]

    async def test_a_job_gives_no_more_room_than_it_has(self, ledger: Ledger, harness: WorkHarness, dag: Piped) -> None:
        """INV-51."""
        names = "abcdef"
        for name in names:
            await ledger.transact(dag.created(name))
        held = token()
        assert await sent(ledger, dag.claimed("a", held, room=3)) == ["yes"]
        answers = await sent(ledger, *(dag.claimed(name, room=3) for name in names[1:]))
        assert answers == ["yes", "yes", "lost", "lost", "lost"]
        await ledger.transact(dag.task("a", "task.completed", dag.fence("a", 1, held)))
        assert await sent(ledger, joined(dag.claimed("d", room=3), dag.claimed("e", room=3))) == ["lost"]
        assert await sent(ledger, dag.claimed("f", room=3)) == ["yes"]
        assert (await harness.rows("task", "status")).count(("Running",)) == 3

    async def test_the_room_is_that_of_the_generation_whatever_version_names_the_job(
        self, ledger: Ledger, dag: Piped
    ) -> None:
        """INV-51."""
        await ledger.transact(dag.deployed(2))
        for name in "abc":
            await ledger.transact(dag.created(name))
        assert await sent(ledger, dag.claimed("a", room=2), dag.claimed("b", room=2, number=2)) == ["yes", "yes"]
        assert await sent(ledger, dag.claimed("c", room=2, number=2)) == ["lost"]
        assert await sent(ledger, dag.claimed("c", room=9, number=3)) == ["lost"], "there is no such job"

    async def test_concurrent_processes_share_the_room(
        self, ledger: Ledger, elsewhere: Ledger, harness: WorkHarness, dag: Piped
    ) -> None:
        """INV-51."""
        await ledger.transact(dag.deployed(2))
        names = [f"t{number}" for number in range(24)]
        await asyncio.gather(*(ledger.transact(dag.created(name)) for name in names))
        answers = await asyncio.gather(
            *(sent(ledger, dag.claimed(name, room=5)) for name in names[::2]),
            *(sent(elsewhere, dag.claimed(name, room=5, number=2)) for name in names[1::2]),
        )
        assert sum(answer == ["yes"] for answer in answers) == 5
        assert (await harness.rows("task", "status")).count(("Running",)) == 5

    async def test_concurrent_processes_never_share_a_task(self, ledger: Ledger, elsewhere: Ledger, dag: Piped) -> None:
        """INV-50."""
        names = [f"t{number}" for number in range(20)]
        await asyncio.gather(*(ledger.transact(dag.created(name)) for name in names))
        mine, theirs = await asyncio.gather(
            asyncio.gather(*(sent(ledger, dag.claimed(name)) for name in names)),
            asyncio.gather(*(sent(elsewhere, dag.claimed(name)) for name in names)),
        )
        assert [sorted(pair) for pair in zip(mine, theirs, strict=True)] == [[["lost"], ["yes"]]] * 20

    async def test_a_task_is_created_once(self, ledger: Ledger, elsewhere: Ledger, dag: Piped) -> None:
        mine, theirs = await asyncio.gather(sent(ledger, dag.created("a")), sent(elsewhere, dag.created("a")))
        assert sorted([*mine, *theirs]) == ["no", "yes"]
        with pytest.raises(Conflict):
            await ledger.transact(dag.created("a"))

    async def test_a_refused_change_leaves_no_row(self, ledger: Ledger, harness: WorkHarness, dag: Piped) -> None:
        """INV-29."""
        await ledger.transact(dag.created("a"))
        fence = Fence("task", 0, dag.task_id("a"), 1, token())
        change = joined(dag.task("a", "task.completed", fence), dag.partition("day=1"), dag.schema("first", "day"))
        assert await sent(ledger, change) == ["lost"]
        assert (
            await harness.rows("partition_version", "version") == await harness.rows("dataset_schema", "version") == []
        )
        assert await harness.rows("task", "status") == [("Queued",)]
