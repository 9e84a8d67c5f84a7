"""A frame that was granted by an answer that got lost: its slot cannot end, and whoever has the slot next works the frame off."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.engine.dispatch.grants import FrameReport
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import LeaseLost
from noetl.testing.engines.memory import open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook

EACH = playbook("""
workload: {rows: [0, 1]}
workflow:
  - step: each
    loop: {in: "{{ rows }}", iterator: n, spec: {mode: parallel, max_in_flight: 1, frame: {max_rows: 1}}}
    tool: {kind: python, input: {n: "{{ n }}"}, code: result = n}
""")


async def test_a_slot_that_ends_with_a_frame_it_never_heard_of_is_handed_back(tmp_path: Path) -> None:
    """INV-208"""
    async with open_memory_playbooks(tmp_path) as playbooks:
        started = await playbooks.begin(EACH)
        dispatch = playbooks.engine.dispatch(playbooks.scope)
        (slot,) = await dispatch.claim("w", 1, 0.0)
        first = await dispatch.next_frame(slot, "w")
        assert first is not None
        # The answer with the second frame never arrives.
        await dispatch.commit_frame(slot, first, FrameReport(row_count=1), worker="w", take_next=True)
        with pytest.raises(LeaseLost, match="frames are left"):
            await dispatch.complete(
                slot, CommandEnded(command_id=slot.command_id, attempt=1, status="ok"), worker="w", take_next=False
            )
        (again,) = await dispatch.claim("w", 1, 0.0)
        second = await dispatch.next_frame(again, "w")
        assert second is not None
        assert (again.attempt, second.first_index, second.attempt) == (2, 1, 2)
        await dispatch.commit_frame(again, second, FrameReport(row_count=1), worker="w", take_next=False)
        report = CommandEnded(command_id=again.command_id, attempt=2, status="ok")
        await dispatch.complete(again, report, worker="w", take_next=False)
        assert (await playbooks.finished(started.execution_id)).status == "COMPLETED"
