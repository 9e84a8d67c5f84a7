"""Children nobody waits for."""

from __future__ import annotations

from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

CHILD = """
workflow:
  - step: work
    tool: {kind: python, code: "result = {'done': True}"}
"""


async def test_a_parent_that_does_not_wait_gets_the_id_of_its_child_and_goes_on(playbooks: Playbooks) -> None:
    await playbooks.register(playbook(CHILD, path="tests/child"))
    parent = await playbooks.run(
        playbook(
            "workflow:\n  - step: start\n    tool: {kind: playbook, path: tests/child, wait: false}\n",
            path="tests/parent",
        )
    )
    assert parent.status == "COMPLETED", parent.error
    child_id = int(parent.results["start"].data["execution_id"])
    child = await playbooks.finished(child_id)
    assert (child.status, child.parent_execution_id) == ("COMPLETED", parent.execution_id)


async def test_rows_may_start_children_nobody_waits_for(playbooks: Playbooks) -> None:
    await playbooks.register(playbook(CHILD, path="tests/child"))
    parent = await playbooks.run(
        playbook(
            "workflow:\n  - step: each\n    loop: {in: '{{ [1, 2, 3] }}', iterator: n}\n"
            "    tool: {kind: playbook, path: tests/child, wait: false}\n",
            path="tests/parent",
        )
    )
    assert parent.status == "COMPLETED", parent.error
    children = [int(row["execution_id"]) for row in parent.results["each"].data["results"]]
    assert len(set(children)) == 3
    assert {(await playbooks.finished(child)).status for child in children} == {"COMPLETED"}
