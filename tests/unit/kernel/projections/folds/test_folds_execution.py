"""The execution fold: status, lineage and the progress of loops in one row."""

from __future__ import annotations

from typing import Any

import pytest
from tests.properties.histories import FIRST_ID, NOTE_ADDED, Chronicle, payload

from noetl.kernel.projections.folds.execution import EXECUTION
from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.state import FoldState


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


def row_of(chronicle: Chronicle) -> Row:
    state = FoldState([EXECUTION], keep_ended=True)
    state.apply_many(chronicle.events)
    (folded,) = state.rows("execution")
    return folded.row


def looping(chronicle: Chronicle, *, size: int | None = 10, loop_id: int = 7, **fields: Any) -> None:
    meta = {"collection_size": size, "mode": "parallel"}
    chronicle.add("loop.started", node_name="each", loop_id=loop_id, meta=meta, **fields)


def test_a_whole_run_gives_one_whole_row(chronicle: Chronicle) -> None:
    chronicle.add("execution.requested", parent_execution_id=5)
    started = chronicle.add("playbook.initialized", catalog_id="cat-1")
    chronicle.add("workflow.initialized", catalog_id="cat-2", parent_execution_id=6)
    chronicle.add("step.entered", node_name="pull")
    ended = chronicle.add("playbook.completed")
    assert row_of(chronicle) == {
        "execution_id": str(FIRST_ID),
        "catalog_id": "cat-1",
        "parent_execution_id": "5",
        "status": "COMPLETED",
        "last_event_type": "playbook.completed",
        "last_node_name": "pull",
        "last_event_id": str(ended.event_id),
        "start_time": "2026-05-16T12:00:00.500000Z",
        "end_time": "2026-05-16T12:00:01.250000Z",
        "error": None,
        "events": 5,
        "state": {"loop": {}, "fanout": {}},
    }
    assert started.position == 2


def test_a_requested_execution_is_pending_until_it_is_initialized(chronicle: Chronicle) -> None:
    chronicle.add("execution.requested")
    chronicle.add("step.skipped", node_name="a")
    assert row_of(chronicle)["status"] == "PENDING"
    chronicle.add("workflow.initialized", parent_execution_id=9)
    row = row_of(chronicle)
    assert (row["status"], row["parent_execution_id"]) == ("RUNNING", "9")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("playbook.completed", "COMPLETED"),
        ("workflow.completed", "COMPLETED"),
        ("playbook.failed", "FAILED"),
        ("workflow.failed", "FAILED"),
        ("execution.failed", "FAILED"),
        ("execution.cancelled", "CANCELLED"),
    ],
)
def test_only_playbook_workflow_and_execution_events_end_it(chronicle: Chronicle, kind: str, status: str) -> None:
    chronicle.add("playbook.initialized")
    chronicle.add("command.failed", command_id="c", error="no such table")
    assert row_of(chronicle)["status"] == "RUNNING"
    assert row_of(chronicle)["error"] is None
    chronicle.add(kind, error="why")
    assert (row_of(chronicle)["status"], row_of(chronicle)["error"]) == (status, "why")


def test_an_ended_execution_stays_as_it_ended(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle)
    chronicle.add("execution.cancelled")
    before = row_of(chronicle)
    chronicle.add("frame.committed", stage_id=1, frame_id=1, loop_id=7, meta={"attempt": 1, "row_count": 3})
    chronicle.add("playbook.initialized")
    chronicle.add("playbook.completed")
    assert row_of(chronicle) == before


def test_an_execution_that_fails_at_once_has_an_ended_row(chronicle: Chronicle) -> None:
    chronicle.add("execution.failed", error="no such playbook")
    state = FoldState([EXECUTION])
    state.apply_many(chronicle.events)
    assert list(state.rows("execution")) == []
    assert state.checksums()["execution"]["rows"] == 1


def test_events_before_the_first_of_the_executions_own_stream_make_no_row(chronicle: Chronicle) -> None:
    looping(chronicle)
    chronicle.add("playbook.initialized", path="elsewhere")
    state = FoldState([EXECUTION])
    state.apply_many(chronicle.events)
    assert state.checksums()["execution"]["rows"] == 0


def test_business_events_in_the_executions_streams_count(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    chronicle.add(NOTE_ADDED)
    assert (row_of(chronicle)["events"], row_of(chronicle)["last_event_type"]) == (2, NOTE_ADDED)


def test_a_loop_stands_in_the_state_by_its_step(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle, context={"collection_ref": "s3://bucket/collection.json"})
    frame = {"stage_id": 1, "loop_id": 7, "node_name": "each"}
    chronicle.add("frame.committed", frame_id=1, meta={"attempt": 1, "row_count": 5, "failed_count": 2}, **frame)
    chronicle.add("frame.failed", frame_id=2, meta={"attempt": 3, "row_count": 4}, **frame)
    assert row_of(chronicle)["state"] == {
        "loop": {
            "each": {
                "loop_id": "7",
                "total": 10,
                "done": 3,
                "failed": 6,
                "collection_ref": "s3://bucket/collection.json",
                "mode": "parallel",
                "completed": False,
            }
        },
        "fanout": {},
    }


def test_a_stored_collection_is_named_by_its_payload(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle, payload_ref=payload("rows"))
    assert row_of(chronicle)["state"]["loop"]["each"]["collection_ref"] == payload("rows").uri


def test_a_failed_frame_without_a_count_still_shows(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle)
    chronicle.add("frame.failed", stage_id=1, frame_id=1, loop_id=7, meta={"attempt": 1})
    assert row_of(chronicle)["state"]["loop"]["each"]["failed"] == 1


def test_commands_of_a_loop_without_frames_count_one_row_each(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle)
    for number, kind in enumerate(["command.completed", "command.completed", "command.failed"]):
        chronicle.add(kind, command_id=f"c{number}", loop_id=7)
    entry = row_of(chronicle)["state"]["loop"]["each"]
    assert (entry["done"], entry["failed"]) == (2, 1)


def test_commands_that_carry_frames_are_counted_by_their_frames_only(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle)
    chronicle.add("command.completed", command_id="c1", loop_id=7, stage_id=1)
    chronicle.add("command.failed", command_id="c2", loop_id=7, frame_id=1)
    chronicle.add("command.completed", command_id="c3")
    entry = row_of(chronicle)["state"]["loop"]["each"]
    assert (entry["done"], entry["failed"]) == (0, 0)


def test_a_loop_that_is_entered_again_is_not_moved_by_frames_of_the_old_one(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle, loop_id=7)
    looping(chronicle, loop_id=8)
    late = {"stage_id": 1, "node_name": "each", "meta": {"attempt": 1, "row_count": 1}}
    chronicle.add("frame.committed", frame_id=1, loop_id=7, **late)
    chronicle.add("frame.committed", frame_id=2, loop_id=8, **late)
    entry = row_of(chronicle)["state"]["loop"]["each"]
    assert (entry["loop_id"], entry["done"]) == ("8", 1)


def test_a_completed_loop_learns_its_total_and_counts_no_more(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle, size=None)
    tally = {"total": 12, "completed": 12, "failed": 0}
    chronicle.add("loop.done", node_name="each", loop_id=7, result={"status": "ok", "context": tally})
    chronicle.add("frame.committed", stage_id=1, frame_id=1, loop_id=7, meta={"attempt": 1, "row_count": 1})
    entry = row_of(chronicle)["state"]["loop"]["each"]
    assert (entry["completed"], entry["total"], entry["done"]) == (True, 12, 0)


def test_a_loop_is_only_entered_by_the_first_event_of_its_stream(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    looping(chronicle, path=f"execution/{FIRST_ID}/loop/99")
    chronicle.add("loop.item", node_name="each", loop_id=8, current_index=0)
    fanout = {"node_name": "each", "loop_id": 8, "meta": {"total_shards": 2}}
    chronicle.add("loop.fanout.started", **fanout)
    assert row_of(chronicle)["state"] == {"loop": {}, "fanout": {}}


def test_a_fan_out_stands_in_the_state_by_its_step(chronicle: Chronicle) -> None:
    chronicle.add("playbook.initialized")
    shard = {"node_name": "all", "loop_id": 9}
    chronicle.add("loop.fanout.started", meta={"total_shards": 3}, **shard)
    chronicle.add("loop.shard.done", shard_id="a", **shard)
    chronicle.add("loop.shard.failed", shard_id="b", **shard)
    assert row_of(chronicle)["state"]["fanout"]["all"] == {
        "loop_id": "9",
        "total_shards": 3,
        "done": 1,
        "failed": 1,
        "status": "running",
    }
    tally = {"done": 1, "failed": 1, "total": 3}
    chronicle.add("loop.fanin.completed", result={"status": "partial", "context": tally}, **shard)
    chronicle.add("loop.shard.done", shard_id="c", **shard)
    entry = row_of(chronicle)["state"]["fanout"]["all"]
    assert (entry["status"], entry["done"]) == ("partial", 1)
