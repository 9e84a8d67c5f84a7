"""Two ledgers, one course of work: whatever is claimed, ended and fenced, memory and PostgreSQL decide alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from noetl.errors import NoetlError
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Fence, Transition
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.model.event import Appended
from noetl.model.stream import Scope
from noetl.testing.contracts.work_harness import MemoryHarness, PostgresHarness, WorkHarness
from noetl.testing.engines.memory_parity import assert_memory_parity
from noetl.testing.samples.executions import IDS, RUN_OUT, Driven, joined, token
from noetl.testing.samples.pipelines import Piped

pytestmark = pytest.mark.service

EXAMPLES = 40
TOKENS = [token() for _ in range(3)]
TOKEN = st.sampled_from(TOKENS)
ATTEMPT = st.integers(0, 3)
SECONDS = st.sampled_from([30.0, 30.0, RUN_OUT])
MODE = st.sampled_from(["held", "held", "expired", "free"])
TASK_MODE = st.sampled_from(["held", "held", "expired", "free", "open", "ended"])
NUMBER = st.integers(0, 2)
RIGHT = st.sampled_from(["all", "all", "attempt", "nothing"])
"""What of a fence is right: mostly all of it, or nothing would ever stand."""
COMMAND_KINDS = st.sampled_from(
    ["command.claimed", "command.completed", "command.failed", "command.abandoned", "command.attempt_failed"]
)
FRAME_KINDS = st.sampled_from(
    ["frame.dispatched", "frame.committed", "frame.failed", "frame.abandoned", "frame.attempt_failed"]
)
TASK_KINDS = st.sampled_from(
    [
        "task.claimed",
        "task.completed",
        "task.failed",
        "task.abandoned",
        "task.retried",
        "task.cancelled",
        "task.started",
    ]
)
ROWS = {
    "execution_head": ("execution_id",),
    "command": ("command_id", "execution_id", "status", "attempt", "worker", "lease_token", "lease_seconds"),
    "frame": ("frame_id", "execution_id", "status", "attempt", "worker", "lease_token", "checkpoint"),
    "stage": ("stage_id", "frames_minted", "frames_open", "frames_failed", "rows_done", "rows_failed", "next_index"),
    "task": ("task_id", "status", "attempt", "lease_token", "max_attempts"),
}


class Pair:
    """Both ledgers and the loop they run in."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.memory = MemoryLedger(new_rows=FoldedRows)
        self.database = self.runner.run(_opened(url))
        self.postgres = PostgresLedger(self.database)
        self.harnesses: tuple[WorkHarness, ...] = (
            MemoryHarness(self.memory), PostgresHarness(self.database, url),
        )  # fmt: skip

    def both(self, transition: Transition) -> Any:
        """Send a transition to both and return the answer after comparing them."""
        mine, theirs = (self.runner.run(_answer(ledger, transition)) for ledger in (self.memory, self.postgres))
        assert mine == theirs
        return mine

    def rows(self, scope: Scope) -> list[list[list[tuple[Any, ...]]]]:
        """Return the rows of both."""
        return [
            [self.runner.run(harness.rows(table, *columns, scope=scope)) for table, columns in ROWS.items()]
            for harness in self.harnesses
        ]

    def close(self) -> None:
        self.runner.run(assert_memory_parity(self.memory))
        self.runner.run(self.postgres.close())
        self.runner.run(self.database.close())
        self.runner.close()


async def _opened(url: str) -> Database:
    return Database(url, as_roles=True)


async def _answer(ledger: Ledger, transition: Transition) -> Any:
    try:
        return tuple(_told(answer) for answer in await ledger.transact(transition))
    except NoetlError as refusal:
        return refusal.code


def _told(answer: Appended) -> tuple[int, int, int, tuple[int, ...]]:
    return answer.first_version, answer.shard, answer.first_position, answer.event_ids


class TransitionMachine(RuleBasedStateMachine):
    """One execution with three commands, a stage with three frames, and a job with three tasks, in a fresh organization."""

    pair: Pair
    sent = Bundle("sent")

    @initialize()
    def begin(self) -> None:
        self.scope = Scope(f"acme{IDS.mint()}", "care")
        self.run = Driven(self.scope)
        self.dag = Piped(self.scope)
        self.frames = [IDS.mint() for _ in range(3)]
        self.ended = False
        begun = [self.run.requested(), self.run.opened(), self.dag.deployed(max_concurrency=2)]
        begun += [self.run.issued("c0/1/0"), self.run.dispatched(self.frames[0], TOKENS[0])]
        begun += [self.dag.created(f"t{number}") for number in range(3)]
        for change in begun:
            assert isinstance(self.pair.both(change), tuple)

    def aimed(self, fence: Fence, right: str) -> Fence:
        """Return a fence as far on the lease that stands as it shall be right; whether that lasts is left open."""
        row = self.pair.memory.work.row(self.scope, fence.table, fence.execution_id, fence.id)
        if right == "nothing" or row is None:
            return fence
        if right == "attempt":
            return msgspec.structs.replace(fence, attempt=row["attempt"])
        mode = "free" if row["lease_token"] is None else "held" if fence.mode == "free" else fence.mode
        return msgspec.structs.replace(fence, attempt=row["attempt"], token=row["lease_token"], mode=mode)

    def send(self, change: Transition) -> Transition:
        self.pair.both(change)
        return change

    @rule(target=sent, number=NUMBER, worker=st.booleans(), held=TOKEN, seconds=SECONDS)
    def issue(self, number: int, worker: bool, held: str, seconds: float) -> Transition:
        if self.ended:
            return self.send(self.dag.created("late"))
        lease: dict[str, Any] = {"worker": "w0", "attempt": 1, "lease_token": held} if worker else {}
        return self.send(self.run.issued(f"c{number}/1/0", lease_seconds=seconds, **lease))

    @rule(
        target=sent,
        number=NUMBER,
        kind=COMMAND_KINDS,
        mode=MODE,
        attempt=ATTEMPT,
        held=st.none() | TOKEN,
        new=TOKEN,
        right=RIGHT,
    )
    def change_command(
        self, number: int, kind: str, mode: str, attempt: int, held: str | None, new: str, right: str
    ) -> Transition:
        name = f"c{number}/1/0"
        fence = self.aimed(self.run.fence(name, attempt, held, mode), right)
        meta = {"attempt": fence.attempt + 1, "worker": "w1", "lease_token": new} if kind == "command.claimed" else {}
        return self.send(self.run.command(name, kind, fence, **meta))

    @rule(target=sent, number=NUMBER, held=TOKEN, seconds=SECONDS)
    def dispatch(self, number: int, held: str, seconds: float) -> Transition:
        return self.send(self.run.dispatched(self.frames[number], held, index=number, seconds=seconds))

    @rule(
        target=sent,
        number=NUMBER,
        kind=FRAME_KINDS,
        mode=MODE,
        attempt=ATTEMPT,
        held=st.none() | TOKEN,
        new=TOKEN,
        right=RIGHT,
    )
    def change_frame(
        self, number: int, kind: str, mode: str, attempt: int, held: str | None, new: str, right: str
    ) -> Transition:
        fence = self.aimed(self.run.frame_fence(self.frames[number], attempt, held, mode), right)
        if kind == "frame.dispatched":
            again = self.run.dispatched(self.frames[number], new, attempt=max(fence.attempt, 1) + 1, index=number)
            return self.send(Transition(again.appends, (fence,)))
        return self.send(self.run.frame(self.frames[number], kind, fence))

    @rule(target=sent, number=NUMBER, following=NUMBER, attempt=ATTEMPT, held=TOKEN, new=TOKEN, right=RIGHT)
    def commit_and_go_on(
        self, number: int, following: int, attempt: int, held: str, new: str, right: str
    ) -> Transition:
        if number == following:
            return self.send(self.run.dispatched(self.frames[number], new, index=number))
        fence = self.aimed(self.run.frame_fence(self.frames[number], attempt, held), right)
        commit = self.run.frame(self.frames[number], "frame.committed", fence)
        return self.send(joined(commit, self.run.dispatched(self.frames[following], new, index=following)))

    @rule(target=sent, number=NUMBER)
    def create_task_again(self, number: int) -> Transition:
        return self.send(self.dag.created(f"t{number}"))

    @rule(
        target=sent,
        number=NUMBER,
        kind=TASK_KINDS,
        mode=TASK_MODE,
        attempt=ATTEMPT,
        held=st.none() | TOKEN,
        new=TOKEN,
        seconds=SECONDS,
        room=st.none() | st.integers(1, 2),
        right=RIGHT,
    )
    def change_task(
        self,
        number: int,
        kind: str,
        mode: Any,
        attempt: int,
        held: str | None,
        new: str,
        seconds: float,
        room: int | None,
        right: str,
    ) -> Transition:
        name = f"t{number}"
        meta: dict[str, Any] = {"extra_attempts": 1} if kind == "task.retried" else {"application_id": "a"}
        own = self.dag.fence(name, attempt, held, mode)
        fences = [own if mode in ("open", "ended") else self.aimed(own, right)]
        if kind == "task.claimed":
            meta = {"attempt": fences[0].attempt + 1, "worker": "w", "lease_token": new, "lease_seconds": seconds}
            fences += [] if room is None else [self.dag.room(room)]
        return self.send(self.dag.task(name, kind, *fences, meta=meta))

    @rule(change=sent)
    def send_the_same_again(self, change: Transition) -> None:
        self.send(change)

    @rule(target=sent, change=sent)
    def send_it_late(self, change: Transition) -> Transition:
        appends = (*change.appends[:-1], change.appends[-1]._replace(expected_version=99))
        return self.send(Transition(appends, change.fences))

    @rule(kind=st.sampled_from(["stage.closed", "playbook.completed", "execution.cancelled", None, None, None]))
    def end(self, kind: str | None) -> None:
        if kind == "stage.closed" and not self.ended:
            self.send(self.run.closed())
        elif kind is not None and not self.ended:
            self.ended = True
            self.send(self.run.ended(kind))

    @invariant()
    def rows_are_the_same(self) -> None:
        if hasattr(self, "scope"):
            mine, theirs = self.pair.rows(self.scope)
            assert mine == theirs


@pytest.fixture
def pair(owner_url: str) -> Iterator[Pair]:
    pair = Pair(owner_url)
    yield pair
    pair.close()


def test_memory_and_postgresql_decide_alike(pair: Pair) -> None:
    """INV-27, INV-29, INV-50."""
    machine = type("BoundMachine", (TransitionMachine,), {"pair": pair})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
