"""A worker killed around the write of a frame's result to shared memory: another ends the run, and no region is left."""

from __future__ import annotations

import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import ROWS, collection, playbook

from noetl.kernel.payloads.shared_memory.shm import memory_directory
from noetl.runtime.payloads.tiers import sweep_node

pytestmark = [pytest.mark.service, pytest.mark.fault]


@pytest.mark.parametrize("point", ["shm.before_write", "shm.after_hint", "frame.before_commit"])
async def test_a_frame_whose_worker_died_around_shared_memory_is_worked_off_again(
    testbed: EngineTestbed, point: str
) -> None:
    """INV-108, INV-110."""
    first = testbed.process(fault=f"{point}=kill", slots=1)
    execution_id = await testbed.start(playbook("each", collection("each", None, slots=1)))
    await first.killed()
    left = list(memory_directory().glob(f"noetl-{execution_id}-*"))
    assert len(left) == (point != "shm.before_write")
    testbed.process(slots=1)
    state = await testbed.finished(execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", ROWS)
    await testbed.assert_clean()
    testbed.close()
    sweep_node(testbed.driven.runtime.settings)
    assert not list(memory_directory().glob(f"noetl-{execution_id}-*"))
