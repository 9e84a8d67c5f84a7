"""The contract of rows of open work as tests: at every step they are what folding the ledger gives.

A subclass gives the fixtures `ledger` and `harness`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from noetl.ledger.port import Ledger
from noetl.ledger.transition import Transition
from noetl.testing.drafts import Drafts
from noetl.testing.execution_changes import IDS, NEIGHBOUR, SCOPE, Driven, joined, one, token
from noetl.testing.runs import framed_run
from noetl.testing.work_harness import WORK_TABLES, WorkHarness


def whole_story(run: Driven) -> list[Transition]:
    """Every way open work changes, one after another; what ends last is left to the caller."""
    first, second, third, shard = (IDS.mint() for _ in range(4))
    held = [token() for _ in range(6)]
    rows_ref = run.drafts.payload(rows=10)
    of_shard = {"shard_id": f"{run.stage_id}-3", "node_name": "each"}
    handed = {"worker": "w9", "attempt": 1, "lease_token": token().upper(), "lease_seconds": 12.5}
    ctx = {"set": {"a": {"b": [1, 2.5, None, True]}, "c.d": 1e-7, "ü": 123456789.125}}
    other, loop = IDS.mint(), run.stage_id
    lone = Driven(SCOPE, run.execution_id)
    lone.stage_id = other

    def shard_event(kind: str, meta: dict[str, Any], **fields: Any) -> Transition:
        given = {"stage_id": loop, "frame_id": shard, "shard_id": of_shard["shard_id"], "meta": meta, **fields}
        return one(run.drafts.loop(run.execution_id, run.loop_id, kind, **given))

    def shard_lease(attempt: int) -> dict[str, Any]:
        row = {"row_count": 1, "frame_index": 3, "lease_token": token(), "lease_seconds": 2.0}
        return {"attempt": attempt, "worker": "w1", **row}

    return [
        run.requested(parent_execution_id=IDS.mint(), meta={"parent_command_id": "up/1/0"}),
        run.issued("a/1/0", "a/1/1", stage_id=run.stage_id, loop_id=run.loop_id, near={"node": "n1", "zone": "z1"}),
        run.issued("handed/1/0", **handed),
        run.issued("child/1/0", child_execution_id=str(IDS.mint())),
        run.claimed("a/1/0", held[0]),
        run.command("a/1/0", "command.attempt_failed", run.fence("a/1/0", 1, held[0]), delay_seconds=0.1234565),
        run.claimed("a/1/0", held[1], attempt=2, worker="w2"),
        run.command("a/1/0", "command.abandoned", attempt=2),
        run.opened(None),
        lone.opened(0, "reduce"),
        run.dispatched(first, held[2], payload_ref=rows_ref),
        run.dispatched(second, held[3], index=1),
        run.dispatched(third, held[4], index=2),
        run.frame(first, "frame.checkpointed", context={"cursor": {"done": 3, "at": "x"}}),
        run.frame(first, "frame.abandoned"),
        run.dispatched(first, held[5], attempt=2),
        run.frame(first, "frame.attempt_failed", meta={"attempt": 2}),
        run.frame(second, "frame.committed", meta={"failed_count": 2, "swallowed": 1}, context=ctx),
        run.frame(third, "frame.failed", context={"set": {"c.d": "later"}}),
        shard_event("loop.shard.enqueued", shard_lease(1), current_index=30, command_id="a/1/1"),
        shard_event("loop.shard.abandoned", {"attempt": 1}),
        shard_event("loop.shard.enqueued", shard_lease(2), current_index=30, command_id="a/1/1"),
        shard_event("loop.shard.attempt_failed", {"attempt": 2}),
        shard_event("loop.shard.enqueued", shard_lease(3), current_index=30, command_id="a/1/0"),
        shard_event("loop.shard.done", {"attempt": 3, "row_count": 1}, context={"set": {"n": 1.0}}),
        joined(run.command("handed/1/0", "command.completed"), lone.closed()),
        run.command("child/1/0", "command.failed"),
    ]


class OpenWorkContract:
    """Tests for any ledger, which must be empty when a test begins."""

    async def test_the_fold_equals_the_rows_after_every_change(self, ledger: Ledger, harness: WorkHarness) -> None:
        """INV-30."""
        run = Driven()
        for number, change in enumerate(whole_story(run)):
            await ledger.transact(change)
            assert await harness.differences() == [], number
            assert await harness.differences(run.execution_id) == [], number
        left = [len(await harness.rows(table, "execution_id")) for table in WORK_TABLES]
        assert left == [1, 2, 1, 1]
        await ledger.transact(run.ended())
        assert await harness.differences() == []

    async def test_verification_while_work_goes_on_finds_nothing(self, ledger: Ledger, harness: WorkHarness) -> None:
        async def work() -> None:
            run = await Driven().begin(ledger, "a/1/0", stage=True)
            for index in range(30):
                frame, held = IDS.mint(), token()
                await ledger.transact(run.dispatched(frame, held, index=index))
                await ledger.transact(run.frame(frame, "frame.committed", run.frame_fence(frame, 1, held)))
            await ledger.transact(run.ended())

        workers = [asyncio.ensure_future(work()) for _ in range(4)]
        while not all(worker.done() for worker in workers):
            assert await harness.differences() == []
            await asyncio.sleep(0)
        await asyncio.gather(*workers)

    async def test_histories_the_engine_does_not_drive_have_no_open_work(
        self, ledger: Ledger, harness: WorkHarness
    ) -> None:
        await framed_run(ledger, Drafts(SCOPE, IDS.mint), ended=False)
        assert await harness.differences() == []

    async def test_a_neighbours_rows_are_not_looked_at(self, ledger: Ledger, harness: WorkHarness) -> None:
        mine = await Driven().begin(ledger, "a/1/0")
        theirs = await Driven(NEIGHBOUR, mine.execution_id).begin(ledger, "b/1/0")
        await ledger.transact(theirs.ended())
        assert await harness.differences() == []
        assert await harness.differences(scope=NEIGHBOUR) == []
