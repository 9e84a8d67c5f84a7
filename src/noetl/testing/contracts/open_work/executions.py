"""The contract of `OpenExecutions` as tests: what dispatch is told about executions and their families.

A subclass gives the fixtures `ledger` and `stores`, which belong together and are empty when a test begins.
"""

from __future__ import annotations

from noetl.engine.dispatch.open_executions.port import Descendant, OpenExecution
from noetl.engine.dispatch.stores import EngineStores
from noetl.kernel.ledger.port import Ledger
from noetl.testing.samples.executions import LONG, NEIGHBOUR, RUN_OUT, SCOPE, Driven, child_of


class OpenExecutionAnswers:
    """Tests for any adapter."""

    async def test_a_family_is_told_from_top_to_bottom(self, ledger: Ledger, stores: EngineStores) -> None:
        top = await Driven().begin(ledger)
        first, second = [await child_of(ledger, top) for _ in range(2)]
        below = await child_of(ledger, first)
        detached = await child_of(ledger, top, detached=True)
        ids = [each.execution_id for each in (top, first, second, below, detached)]
        found = await stores.running.below(SCOPE, [top.execution_id])
        assert found == [
            *(Descendant(each, top.execution_id, 1) for each in sorted((ids[1], ids[2], ids[4]))),
            Descendant(ids[3], ids[1], 2),
        ]
        assert sorted(await stores.running.waited_for(SCOPE, ids[0])) == sorted(ids[1:3])
        assert await stores.running.ended(SCOPE, [*ids, 5]) == [5]
        assert await stores.running.below(NEIGHBOUR, [top.execution_id]) == []
        assert await stores.running.top_of(SCOPE, ids[3]) is None
        assert (await stores.running.outlived(SCOPE, ids[0]), await stores.running.orphans(RUN_OUT, ())) == ([], [])

    async def test_who_outlived_its_parent_is_known(self, ledger: Ledger, stores: EngineStores) -> None:
        top = await Driven().begin(ledger)
        middle = await child_of(ledger, top)
        child = await child_of(ledger, middle)
        below = await child_of(ledger, child)
        for ended in (middle, top):
            await ledger.transact(ended.ended("execution.cancelled"))
        orphan = OpenExecution(SCOPE, child.execution_id, middle.execution_id)
        for known in (top, middle):
            outlived = await stores.running.outlived(SCOPE, known.execution_id)
            assert outlived == [Descendant(child.execution_id, middle.execution_id, 1)]
        assert await stores.running.outlived(SCOPE, below.execution_id) == []
        assert await stores.running.top_of(SCOPE, below.execution_id) == orphan
        assert await stores.running.top_of(SCOPE, child.execution_id) == orphan
        assert await stores.running.orphans(RUN_OUT, ()) == [orphan]
        assert await stores.running.orphans(LONG, ()) == []
        assert await stores.running.orphans(RUN_OUT, {child.execution_id}) == []
        assert await stores.running.ended(SCOPE, [top.execution_id, child.execution_id]) == [top.execution_id]

    async def test_lengthy_decisions_are_counted_by_version(self, ledger: Ledger, stores: EngineStores) -> None:
        """INV-189: whoever decides after a process was killed counts on."""
        one = (await Driven().begin(ledger)).execution_id
        assert [await stores.running.deciding(SCOPE, one, 3) for _ in range(3)] == [1, 2, 3]
        assert await stores.running.deciding(NEIGHBOUR, one, 3) == 1
        assert await stores.running.deciding(SCOPE, one, 4) == 1
        assert await stores.running.deciding(SCOPE, 5, 0) == 1  # one that was never started
        await stores.running.decided(SCOPE, one)
        assert await stores.running.deciding(SCOPE, one, 4) == 1
        assert await stores.running.deciding(NEIGHBOUR, one, 3) == 2

    async def test_an_open_execution_is_told_with_its_version(self, ledger: Ledger, stores: EngineStores) -> None:
        top = await Driven().begin(ledger, "a/1/0")
        child = await child_of(ledger, top)
        found = await stores.running.head(SCOPE, child.execution_id)
        assert found is not None
        assert (found.execution_id, found.parent_execution_id) == (child.execution_id, top.execution_id)
        assert (found.catalog_id, found.path) == ("c1", "tests/driven")
        before = await stores.running.head(SCOPE, top.execution_id)
        await ledger.transact(top.issued("b/1/0"))
        after = await stores.running.head(SCOPE, top.execution_id)
        assert before is not None
        assert after is not None
        assert after.version == before.version + 1
        assert await stores.running.head(NEIGHBOUR, top.execution_id) is None
        await ledger.transact(top.ended("execution.failed"))
        assert await stores.running.head(SCOPE, top.execution_id) is None

    async def test_an_execution_whose_time_is_over_is_found_until_it_ends(
        self, ledger: Ledger, stores: EngineStores
    ) -> None:
        """INV-162."""
        late, later, none = Driven(), Driven(), Driven()
        await ledger.transact(late.requested(meta={"limit_seconds": 1e-6}))
        await ledger.transact(later.requested(meta={"limit_seconds": LONG}))
        await ledger.transact(none.requested())
        assert await stores.running.overdue() == [OpenExecution(SCOPE, late.execution_id)]
        await ledger.transact(late.ended("execution.failed"))
        assert await stores.running.overdue() == []

    async def test_an_execution_without_a_command_stands_still(self, ledger: Ledger, stores: EngineStores) -> None:
        still, busy = await Driven().begin(ledger, stage=True), await Driven().begin(ledger, "a/1/0")
        found = OpenExecution(SCOPE, still.execution_id)
        assert (await stores.running.idle(RUN_OUT), await stores.running.idle(LONG)) == ([found], [])
        await ledger.transact(busy.command("a/1/0", "command.completed"))
        assert {each.execution_id for each in await stores.running.idle(RUN_OUT)} == {
            still.execution_id, busy.execution_id,
        }  # fmt: skip
