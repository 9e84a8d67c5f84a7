"""The contract of rows of open work as tests: at every step they are what folding the ledger gives.

A subclass gives the fixtures `ledger` and `harness`.
"""

from __future__ import annotations

import asyncio

from noetl.kernel.ledger.port import Ledger
from noetl.testing.contracts.open_work.story import whole_story
from noetl.testing.contracts.work_harness import WORK_TABLES, WorkHarness
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.executions import IDS, NEIGHBOUR, SCOPE, Driven, token
from noetl.testing.samples.runs import framed_run


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
