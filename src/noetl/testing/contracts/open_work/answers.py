"""The contract of `OpenWork` as tests: what dispatch is told about commands, stages and frames.

A subclass gives the fixtures `ledger` and `stores`, which belong together and are empty when a test begins.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from noetl.engine.dispatch.open_work.port import SuspendedCommand
from noetl.engine.dispatch.stores import EngineStores
from noetl.kernel.leases.kinds import COMMAND, FRAME
from noetl.kernel.leases.open_work import Nearness
from noetl.kernel.ledger.port import Ledger
from noetl.model.lease import Proof
from noetl.testing.samples.executions import IDS, LONG, NEIGHBOUR, RUN_OUT, SCOPE, Driven, one, token

ANYWHERE: Final = Nearness(None, None, None, (0.0, 0.0, 0.0, 0.0))


class OpenWorkAnswers:
    """Tests for any adapter."""

    async def test_commands_wait_in_the_order_they_became_available(self, ledger: Ledger, stores: EngineStores) -> None:
        run = await Driven().begin(ledger, "a/1/0", "b/1/0")
        await ledger.transact(run.issued("slot/1/0", stage_id=run.stage_id, loop_id=run.loop_id))
        await ledger.transact(run.issued("held/1/0", worker="w", attempt=1, lease_token=token()))
        await ledger.transact(run.issued("child/1/0", child_execution_id=str(IDS.mint())))
        await ledger.transact(run.claimed("a/1/0", token()))
        await ledger.transact(run.command("a/1/0", "command.attempt_failed", delay_seconds=LONG))

        async def names(want: int, *, loops: bool) -> list[str]:
            return [one.command_id for one in await stores.work.pending(SCOPE, want, ANYWHERE, loops=loops)]

        assert await names(9, loops=True) == ["b/1/0", "slot/1/0"]
        assert await names(1, loops=True) == ["b/1/0"]
        assert await names(9, loops=False) == ["b/1/0"]
        await ledger.transact(run.command("a/1/0", "command.abandoned"))
        found = await stores.work.pending(SCOPE, 9, ANYWHERE, loops=True)
        assert [(one.command_id, one.attempt) for one in found] == [("b/1/0", 0), ("slot/1/0", 0), ("a/1/0", 1)]
        assert (found[1].loop_id, found[1].lease_seconds) == (run.loop_id, 30.0)
        assert await stores.work.pending(NEIGHBOUR, 9, ANYWHERE, loops=True) == []

    async def test_work_that_lies_near_others_opens_later(self, ledger: Ledger, stores: EngineStores) -> None:
        run = await Driven().begin(ledger)
        await ledger.transact(run.issued("a/1/0", near={"node": "n1", "zone": "z1", "region": "r1"}))
        for node, zone, region, at in (
            ("n1", "z9", "r9", 0), ("n2", "z1", "r1", 1), ("n2", "z2", "r1", 2), ("n2", "z1", "r2", 3),
        ):  # fmt: skip
            opens = [LONG] * 4
            assert await stores.work.pending(SCOPE, 9, Nearness(node, zone, region, opens), loops=True) == []
            opens[at] = 0.0
            assert len(await stores.work.pending(SCOPE, 9, Nearness(node, zone, region, opens), loops=True)) == 1

    @pytest.mark.parametrize("table", ["command", "frame"])
    async def test_a_lease_is_renewed_by_its_holder_alone(
        self, ledger: Ledger, stores: EngineStores, table: str
    ) -> None:
        run = await Driven().begin(ledger, stage=True)
        kind = COMMAND if table == "command" else FRAME
        names: list[Any] = ["a/1/0", "b/1/0"] if table == "command" else [IDS.mint(), IDS.mint()]
        held = [token(), token()]
        for name, mine, seconds in zip(names, held, (30.0, RUN_OUT), strict=True):
            lease = {"worker": "w", "attempt": 1, "lease_token": mine, "lease_seconds": seconds}
            change = run.issued(name, **lease) if table == "command" else None
            await ledger.transact(change or run.dispatched(name, mine, index=names.index(name), seconds=seconds))
        lasting, over = (Proof((run.execution_id, name), 1, mine) for name, mine in zip(names, held, strict=True))
        stale = [msgspec.structs.replace(lasting, attempt=2), msgspec.structs.replace(lasting, token=token())]
        assert list(await stores.work.renew(SCOPE, kind, [lasting, over, *stale])) == [lasting]
        assert set(await stores.work.gone(SCOPE, kind, [lasting, over, *stale])) == set(stale)
        assert list(await stores.work.renew(NEIGHBOUR, kind, [lasting])) == []
        make = run.fence if table == "command" else run.frame_fence
        for proof, holds in ((lasting, True), (over, False), (stale[0], False), (stale[1], False)):
            fence = make(proof.key[1], proof.attempt, proof.token)
            assert await stores.work.holds(SCOPE, fence) is holds

    async def test_a_frame_that_was_given_up_waits_with_what_it_had(self, ledger: Ledger, stores: EngineStores) -> None:
        run = await Driven().begin(ledger, stage=True)
        first, second = IDS.mint(), IDS.mint()
        ref = run.drafts.payload(rows=10)
        await ledger.transact(run.dispatched(second, token(), index=1))
        await ledger.transact(run.dispatched(first, token(), payload_ref=ref))
        assert await stores.work.free_frames(SCOPE, run.execution_id, run.stage_id) == []
        await ledger.transact(run.frame(first, "frame.checkpointed", context={"cursor": {"done": 3}}))
        for frame in (second, first):
            await ledger.transact(run.frame(frame, "frame.abandoned"))
        found, after = await stores.work.free_frames(SCOPE, run.execution_id, run.stage_id)
        assert (after.frame_id, after.held_by) == (second, "w1")
        assert found.held_by == "w1"
        assert (found.frame_id, found.frame_index, found.first_index, found.row_count) == (first, 0, 0, 10)
        assert (found.attempt, found.input_ref, found.checkpoint) == (1, ref, {"done": 3})

    async def test_frames_of_a_slot_are_told_with_their_leases(self, ledger: Ledger, stores: EngineStores) -> None:
        run = await Driven().begin(ledger, stage=True)
        lasting, over, others, held = IDS.mint(), IDS.mint(), IDS.mint(), token()
        await ledger.transact(run.dispatched(lasting, held))
        await ledger.transact(run.dispatched(over, token(), index=1, seconds=RUN_OUT))
        await ledger.transact(run.dispatched(others, token(), index=2, command_id="each/1/1"))
        found = {one.frame_id: one for one in await stores.work.frames_of(SCOPE, run.execution_id, "each/1/0")}
        assert {name: one.has_expired for name, one in found.items()} == {lasting: False, over: True}
        frame = found[lasting]
        assert (frame.lease_token, frame.attempt, frame.worker, frame.row_count) == (held, 1, "w1", 10)
        assert (frame.stage_id, frame.loop_id, frame.max_attempts) == (run.stage_id, run.loop_id, 3)
        in_hand = await stores.work.frames_in_hand(SCOPE, run.execution_id)
        assert {one.frame_id for one in in_hand} == {lasting, over, others}
        assert {(one.stage_id, one.rows_done, one.row_count) for one in in_hand} == {(run.stage_id, 0, 10)}

    async def test_a_stage_tells_how_far_it_is_until_it_is_closed(self, ledger: Ledger, stores: EngineStores) -> None:
        run = await Driven().begin(ledger)
        policy = {"frame_policy": {"fail_fast": True, "process": "frame", "max_attempts": 7}}
        meta = {"kind": "loop", "dsl_ref": "p#each", "total_rows": 30}
        opened = run.drafts.stage(run.execution_id, run.stage_id, loop_id=run.loop_id, meta=meta, context=policy)
        await ledger.transact(one(opened))
        good, bad = IDS.mint(), IDS.mint()
        for index, frame in enumerate((good, bad)):
            await ledger.transact(run.dispatched(frame, token(), index=index))
        stage = await stores.work.stage(SCOPE, run.execution_id, run.stage_id)
        assert stage is not None
        assert (stage.next_index, stage.frames_minted, stage.frames_open) == (20, 2, 2)
        assert (stage.has_failed_fast, stage.is_one_per_frame) == (False, True)
        assert (await stores.work.frames_of(SCOPE, run.execution_id, "each/1/0"))[0].max_attempts == 7
        await ledger.transact(run.frame(good, "frame.committed", meta={"failed_count": 2}, context={"set": {"a": [1]}}))
        await ledger.transact(run.frame(bad, "frame.failed"))
        stage = await stores.work.stage(SCOPE, run.execution_id, run.stage_id)
        assert stage is not None
        assert (stage.frames_open, stage.frames_failed, stage.rows_done, stage.rows_failed) == (0, 1, 8, 12)
        assert (stage.ctx, stage.has_failed_fast) == ({"a": [1]}, True)
        await ledger.transact(run.closed())
        assert await stores.work.stage(SCOPE, run.execution_id, run.stage_id) is None

    async def test_a_stage_goes_on_after_a_failed_frame_unless_it_is_told_not_to(
        self, ledger: Ledger, stores: EngineStores
    ) -> None:
        run, frame = await Driven().begin(ledger, stage=True), IDS.mint()
        await ledger.transact(run.dispatched(frame, token()))
        await ledger.transact(run.frame(frame, "frame.failed"))
        stage = await stores.work.stage(SCOPE, run.execution_id, run.stage_id)
        assert stage is not None
        assert (stage.frames_failed, stage.has_failed_fast, stage.is_one_per_frame) == (1, False, False)

    async def test_leases_that_ran_out_are_found_in_every_organization(
        self, ledger: Ledger, stores: EngineStores
    ) -> None:
        runs = [await Driven(scope).begin(ledger, stage=True) for scope in (SCOPE, NEIGHBOUR)]
        lease = {"worker": "w9", "attempt": 2, "lease_token": token()}
        for run, seconds in zip(runs, (RUN_OUT, 2 * RUN_OUT), strict=True):
            await ledger.transact(run.issued("over/1/0", **lease, lease_seconds=seconds, stage_id=run.stage_id))
            await ledger.transact(run.issued("lasts/1/0", **lease))
            await ledger.transact(run.dispatched(7, token(), seconds=seconds))
            await ledger.transact(run.dispatched(8, token(), index=1))
        commands, frames = await stores.work.expired_commands(), await stores.work.expired_frames()
        assert {(lost.scope, lost.execution_id, lost.command_id) for lost in commands} == {
            (run.drafts.scope, run.execution_id, "over/1/0") for run in runs
        }
        lost = next(lost for lost in commands if lost.scope == SCOPE)
        assert (lost.attempt, lost.lease_token, lost.worker) == (2, lease["lease_token"], "w9")
        assert (lost.stage_id, lost.loop_id, lost.step_name) == (runs[0].stage_id, None, "work")
        assert {(scope, frame.execution_id, frame.frame_id) for scope, frame in frames} == {
            (run.drafts.scope, run.execution_id, 7) for run in runs
        }
        assert all(frame.has_expired for _, frame in frames)

    async def test_a_command_waits_for_a_child_that_is_not_open(self, ledger: Ledger, stores: EngineStores) -> None:
        run, child = await Driven().begin(ledger, "a/1/0"), Driven()
        await ledger.transact(run.issued("child/1/0", child_execution_id=str(child.execution_id)))
        work = stores.work
        assert await work.is_suspended(SCOPE, run.execution_id, "child/1/0")
        assert not await work.is_suspended(SCOPE, run.execution_id, "a/1/0")
        assert not await work.is_suspended(NEIGHBOUR, run.execution_id, "child/1/0")
        waiting = SuspendedCommand(SCOPE, run.execution_id, "child/1/0", child.execution_id)
        assert (await work.forgotten(LONG), await work.forgotten(RUN_OUT)) == ([], [waiting])
        await child.begin(ledger)
        assert await work.forgotten(RUN_OUT) == []
        await ledger.transact(child.ended())
        assert await work.forgotten(RUN_OUT) == [waiting]
