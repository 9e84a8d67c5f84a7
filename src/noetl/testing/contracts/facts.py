"""The contract of `Facts` as tests: what dispatch finds among recorded facts.

A subclass gives the fixtures `ledger` and `stores`, which belong together and are empty when a test begins.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine.dispatch.facts.port import IssuedCommand
from noetl.engine.dispatch.stores import EngineStores
from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.port import Ledger
from noetl.model.payload_ref import payload_uri
from noetl.model.stream import Scope
from noetl.testing.contracts.open_work.answers import ANYWHERE
from noetl.testing.samples.executions import IDS, NEIGHBOUR, SCOPE, Driven, child_of, one, token


class FactAnswers:
    """Tests for any adapter."""

    async def test_what_a_command_was_issued_with_is_kept(self, ledger: Ledger, stores: EngineStores) -> None:
        run = await Driven().begin(ledger)
        meta = {"tool_kind": "playbook", "lease_seconds": 30.0, "child_execution_id": "7"}
        draft = run.drafts.execution(
            run.execution_id,
            "command.issued",
            node_name="a",
            command_id="a/1/0",
            meta=meta,
            context={"child": {"n": 1}},
        )
        await ledger.transact(one(draft))
        await ledger.transact(run.command("a/1/0", "command.completed"))
        assert await stores.facts.issued(SCOPE, run.execution_id, "a/1/0") == IssuedCommand(meta, {"child": {"n": 1}})
        assert await stores.facts.issued(SCOPE, run.execution_id, "b/1/0") is None
        assert await stores.facts.issued(NEIGHBOUR, run.execution_id, "a/1/0") is None

    async def test_losses_count_from_the_last_frame_a_command_committed(
        self, ledger: Ledger, stores: EngineStores
    ) -> None:
        """INV-179: what was handed back is no loss, and frames of other slots are no progress."""
        run, name = await Driven().begin(ledger, stage=True), "each/1/0"
        await ledger.transact(run.issued(name, "each/1/1", stage_id=run.stage_id, loop_id=run.loop_id))
        issued = next(one.issued_event_id for one in await stores.work.pending(SCOPE, 9, ANYWHERE, loops=True))

        async def losses(scope: Scope = SCOPE, loop_id: int | None = run.loop_id) -> int:
            return await stores.facts.losses(scope, run.execution_id, name, issued, loop_id)

        async def leased(kind: str) -> None:
            stream_id = f"execution/{run.execution_id}/command/{issued}"
            draft = run.drafts.command(run.execution_id, name, kind, meta={"attempt": 1})
            await ledger.transact(one(msgspec.structs.replace(draft, stream_id=stream_id)))

        async def committed(command_id: str, index: int) -> None:
            frame = IDS.mint()
            await ledger.transact(run.dispatched(frame, token(), index=index, command_id=command_id))
            await ledger.transact(run.frame(frame, "frame.committed", command_id=command_id))

        assert await losses() == 0
        for kind in ("command.abandoned", "command.returned", "command.attempt_failed"):
            await leased(kind)
        assert await losses() == 2
        await committed("each/1/1", 0)
        assert await losses() == 2
        await committed(name, 1)
        assert (await losses(), await losses(loop_id=None), await losses(NEIGHBOUR)) == (0, 2, 0)
        await leased("command.abandoned")
        assert await losses() == 1
        # A frame that failed of its work is progress, too; one that fails because its worker was lost names no slot.
        for command_id, left in ((None, 1), (name, 0)):
            frame = IDS.mint()
            await ledger.transact(run.dispatched(frame, token(), index=2 + left, command_id=name))
            await ledger.transact(run.frame(frame, "frame.failed", error="it broke", command_id=command_id))
            assert await losses() == left

    @pytest.mark.parametrize(
        ("kind", "end", "own", "takes"),
        [
            ("execution.cancelled", {}, {}, True),
            ("execution.cancelled", {}, {"detached": True}, True),
            ("execution.cancelled", {"cascade": False}, {}, False),
            ("playbook.failed", {}, {}, True),
            ("playbook.failed", {}, {"detached": True}, False),
            ("execution.failed", {}, {}, True),
            ("playbook.completed", {}, {}, False),
        ],
    )
    async def test_a_parent_takes_along_what_it_waited_for(
        self, ledger: Ledger, stores: EngineStores, kind: str, end: dict[str, Any], own: dict[str, Any], *, takes: bool
    ) -> None:
        parent = await Driven().begin(ledger)
        child = await child_of(ledger, parent, **own)
        assert await stores.facts.taking_along(SCOPE, parent.execution_id, child.execution_id) is None
        await ledger.transact(one(parent.drafts.execution(parent.execution_id, kind, meta=end)))
        found = await stores.facts.taking_along(SCOPE, parent.execution_id, child.execution_id)
        assert found == (kind if takes else None)

    async def test_frames_of_a_loop_are_told_in_the_order_of_their_rows(
        self, ledger: Ledger, stores: EngineStores
    ) -> None:
        run = await Driven().begin(ledger, stage=True)
        frames = [IDS.mint() for _ in range(3)]
        ref = run.drafts.payload(rows=10)
        for index in (2, 1, 0):
            await ledger.transact(run.dispatched(frames[index], token(), index=index))
        await ledger.transact(run.frame(frames[2], "frame.failed", error="it broke"))
        await ledger.transact(run.frame(frames[1], "frame.abandoned"))
        await ledger.transact(run.dispatched(frames[1], token(), attempt=2, index=1))
        errors = {"errors": [{"index": 13, "message": "thirteen"}]}
        await ledger.transact(
            run.frame(
                frames[1], "frame.committed", meta={"attempt": 2, "failed_count": 1}, result=errors, payload_ref=ref
            )
        )
        await ledger.transact(run.frame(frames[0], "frame.committed", payload_ref=ref))
        ends = await stores.facts.frame_ends(SCOPE, run.execution_id, run.loop_id)
        assert [(end.frame_id, end.first_index, end.row_count) for end in ends] == [
            (frame, index * 10, 10) for index, frame in enumerate(frames)
        ]
        assert [end.payload_ref for end in ends] == [ref, ref, None]
        assert [end.worker for end in ends] == ["w1", None, None], "known of first attempts that gave something"
        failure = await stores.facts.first_failure(SCOPE, run.execution_id, run.loop_id)
        assert failure is not None
        assert (failure.frame_id, failure.first_index, failure.row_count) == (frames[1], 10, 10)
        assert (failure.result, failure.error) == (errors, None)
        assert await stores.facts.frame_ends(SCOPE, run.execution_id, run.loop_id + 1) == []
        assert await stores.facts.first_failure(NEIGHBOUR, run.execution_id, run.loop_id) is None

    async def test_a_key_leads_to_the_execution_it_was_used_for(self, ledger: Ledger, stores: EngineStores) -> None:
        run = Driven()
        await ledger.transact(run.requested(idempotency_key="request/monday"))
        assert await stores.facts.execution_of(SCOPE, "request/monday") == run.execution_id
        assert await stores.facts.execution_of(SCOPE, "request/tuesday") is None
        assert await stores.facts.execution_of(NEIGHBOUR, "request/monday") is None

    async def test_a_payload_is_found_by_its_locator_where_an_event_refers_to_it(
        self, ledger: Ledger, stores: EngineStores
    ) -> None:
        run = await Driven().begin(ledger, stage=True)
        ref = run.drafts.payload(rows=10)
        at = payload_uri(SCOPE.tenant_id, SCOPE.organization_id, ref.sha256)
        with pytest.raises(NotFound):
            await stores.facts.payload_at(SCOPE, at)
        await ledger.transact(run.dispatched(IDS.mint(), token(), payload_ref=ref))
        assert await stores.facts.payload_at(SCOPE, at) == ref
        for wrong in (at.replace(SCOPE.organization_id, "other"), "file:///etc/passwd", ref.sha256):
            with pytest.raises(InputError):
                await stores.facts.payload_at(SCOPE, wrong)
