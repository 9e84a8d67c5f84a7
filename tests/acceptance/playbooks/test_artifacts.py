"""What tasks put into the payload store: an event names it, so that nobody collects it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from noetl.kernel.payloads.garbage_collection import collect
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


async def stored(playbooks: Playbooks, execution_id: int) -> list[Any]:
    """Return what the execution's events say of artifacts, in their order."""
    query = (
        "SELECT event_type, node_name, frame_id, payload_sha256, stream_id FROM noetl.event"
        " WHERE execution_id = $1 AND event_type = 'artifact.stored' ORDER BY position"
    )
    async with playbooks.runtime.database.transaction(playbooks.scope) as connection:
        return list(await connection.fetch(query, execution_id))


async def collected(playbooks: Playbooks) -> int:
    """Collect whatever nothing refers to, however young it is, and return how much that was."""
    runtime, soon = playbooks.runtime, datetime.now(UTC) + timedelta(hours=1)
    report = await collect(runtime.payloads, runtime.references, playbooks.scope, now=soon, grace=timedelta(), ttl=None)
    return report.removed


async def test_what_a_step_put_is_named_by_an_event_and_never_collected(playbooks: Playbooks) -> None:
    """INV-147: also what a task before the last one put, whose reference is in no result."""
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: keep
            tool:
              - {name: first, kind: artifact, action: put, input: {data: {text: first}}}
              - {name: second, kind: artifact, action: put, input: {data: {text: second}}, set: {ctx.kept: "{{ output.data.uri }}"}}
              - {name: same, kind: artifact, action: put, input: {data: {text: second}}}
              - {name: last, kind: noop}
            next: {arcs: [{step: fails}]}
          - step: fails
            tool: [{name: put, kind: artifact, action: put, input: {data: {text: third}}}, {name: no, kind: python, code: "raise ValueError('no')"}]
        """)
    )

    assert state.status == "FAILED"
    found = await stored(playbooks, state.execution_id)
    assert [event["node_name"] for event in found] == ["keep", "keep", "fails"]
    assert len({event["payload_sha256"] for event in found}) == 3
    assert await collected(playbooks) == 0

    again = await playbooks.run(
        playbook("workload: {ref: ''}\nworkflow: [{step: get, tool: {kind: artifact, ref: '{{ workload.ref }}'}}]"),
        {"ref": state.ctx["kept"]},
    )
    assert again.status == "COMPLETED", again.error
    assert again.results["get"].data == {"text": "second"}


async def test_what_rows_of_a_loop_put_stands_before_the_commit_of_their_frame(playbooks: Playbooks) -> None:
    """INV-147."""
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: each
            loop: {in: "{{ range(5) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 1, frame: {max_rows: 3}}}
            tool:
              - {name: put, kind: artifact, action: put, input: {data: {text: "{{ iter.n }}"}}}
              - {name: count, kind: python, code: "result = 1"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    found = await stored(playbooks, state.execution_id)
    assert len({event["payload_sha256"] for event in found}) == len(found) == 5
    assert all(event["stream_id"].endswith(f"/frame/{event['frame_id']}") for event in found)
    told = await playbooks.events(state.execution_id, "frame.dispatched", "artifact.stored", "frame.committed")
    kinds = [event["event_type"].partition(".")[2] for event in told]
    assert kinds == ["dispatched", *["stored"] * 3, "committed", "dispatched", *["stored"] * 2, "committed"]
    assert await collected(playbooks) == 0
