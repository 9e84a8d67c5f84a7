"""The stage and frame folds: one row per stage and per leased window of rows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.properties.histories import FIRST_ID, Chronicle, payload

from noetl.kernel.projections.folds.fold import Fold, Row
from noetl.kernel.projections.folds.frame import FRAME
from noetl.kernel.projections.folds.stage import STAGE
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.event import Event


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


def rows_of(chronicle: Chronicle, fold: Fold) -> dict[str, Row]:
    state = FoldState([fold], keep_ended=True)
    state.apply_many(chronicle.events)
    return {folded.key.row_id: folded.row for folded in state.rows(fold.projection)}


def frame_row(chronicle: Chronicle) -> Row:
    return rows_of(chronicle, FRAME)[f"{FIRST_ID}/3"]


def stage_row(chronicle: Chronicle) -> Row:
    return rows_of(chronicle, STAGE)[f"{FIRST_ID}/2"]


def frame(chronicle: Chronicle, kind: str, *, attempt: int = 1, frame_id: int = 3, **fields: Any) -> Event:
    meta = {"attempt": attempt, **fields.pop("meta", {})}
    return chronicle.add(kind, stage_id=2, frame_id=frame_id, loop_id=7, meta=meta, **fields)


def dispatch(chronicle: Chronicle, *, worker: str = "w1", **fields: Any) -> Event:
    return frame(chronicle, "frame.dispatched", meta={"worker": worker, "row_count": 50}, **fields)


def open_stage(chronicle: Chronicle) -> Event:
    meta, context = {"kind": "loop", "dsl_ref": "pull@1"}, {"frame_policy": {"max_rows": 50}}
    return chronicle.add("stage.opened", node_name="each", stage_id=2, loop_id=7, meta=meta, context=context)


def test_a_committed_frame_gives_one_whole_row(chronicle: Chronicle) -> None:
    claimed = dispatch(chronicle, payload_ref=payload("rows"), context={"cursor": {"first": 0, "last": 50}})
    ended = frame(
        chronicle, "frame.committed", meta={"row_count": 49, "failed_count": 1}, payload_ref=payload("result")
    )
    assert frame_row(chronicle) == {
        "frame_id": "3",
        "stage_id": "2",
        "execution_id": str(FIRST_ID),
        "loop_id": "7",
        "status": "COMMITTED",
        "owner_worker": "w1",
        "attempts": 1,
        "row_count": 49,
        "failed_count": 1,
        "cursor": {"first": 0, "last": 50},
        "input_ref": {"sha256": payload("rows").sha256, "uri": payload("rows").uri},
        "output_ref": {"sha256": payload("result").sha256, "uri": payload("result").uri},
        "claimed_event_id": str(claimed.event_id),
        "terminal_event_id": str(ended.event_id),
        "created_at": "2026-05-16T12:00:00.250000Z",
        "completed_at": "2026-05-16T12:00:00.500000Z",
        "error": None,
    }


def test_an_abandoned_frame_is_free_and_its_next_owner_has_the_same_rows(chronicle: Chronicle) -> None:
    dispatch(chronicle, payload_ref=payload("rows"))
    frame(chronicle, "frame.abandoned")
    row = frame_row(chronicle)
    assert (row["status"], row["owner_worker"]) == ("ABANDONED", None)
    again = dispatch(chronicle, worker="w2", attempt=2)
    row = frame_row(chronicle)
    assert (row["status"], row["owner_worker"], row["attempts"]) == ("DISPATCHED", "w2", 2)
    assert row["claimed_event_id"] == str(again.event_id)
    assert row["input_ref"]["sha256"] == payload("rows").sha256


def test_rows_named_again_replace_the_first_names(chronicle: Chronicle) -> None:
    dispatch(chronicle, payload_ref=payload("rows"))
    dispatch(chronicle, attempt=2, payload_ref=payload("same rows, stored anew"))
    assert frame_row(chronicle)["input_ref"]["sha256"] == payload("same rows, stored anew").sha256


def test_a_failed_attempt_keeps_its_error_until_the_frame_is_committed(chronicle: Chronicle) -> None:
    dispatch(chronicle)
    frame(chronicle, "frame.attempt_failed", error="timeout")
    row = frame_row(chronicle)
    assert (row["status"], row["owner_worker"], row["error"]) == ("ATTEMPT_FAILED", None, "timeout")
    dispatch(chronicle, attempt=2)
    frame(chronicle, "frame.committed", attempt=2, meta={"row_count": 50})
    row = frame_row(chronicle)
    assert (row["status"], row["attempts"], row["failed_count"], row["error"]) == ("COMMITTED", 2, 0, None)


@pytest.mark.parametrize(("error", "shown"), [(None, "timeout"), ("gave up", "gave up")])
def test_a_failed_frame_says_why(chronicle: Chronicle, error: str | None, shown: str) -> None:
    dispatch(chronicle)
    frame(chronicle, "frame.attempt_failed", error="timeout")
    ended = frame(chronicle, "frame.failed", error=error)
    row = frame_row(chronicle)
    assert (row["status"], row["error"], row["terminal_event_id"]) == ("FAILED", shown, str(ended.event_id))


def test_a_checkpoint_and_a_commit_move_the_cursor_when_they_name_one(chronicle: Chronicle) -> None:
    dispatch(chronicle, context={"cursor": 0})
    frame(chronicle, "frame.checkpointed", context={"cursor": 20})
    frame(chronicle, "frame.checkpointed")
    assert frame_row(chronicle)["cursor"] == 20
    frame(chronicle, "frame.committed", meta={"row_count": 50}, context={"cursor": 50})
    assert frame_row(chronicle)["cursor"] == 50


def test_a_frame_is_opened_only_by_a_dispatch_at_version_1_of_its_own_stream(chronicle: Chronicle) -> None:
    frame(chronicle, "frame.checkpointed")
    dispatch(chronicle)
    dispatch(chronicle, frame_id=4, path=f"execution/{FIRST_ID}/frame/5")
    assert rows_of(chronicle, FRAME) == {}


def test_an_ended_frame_cannot_be_opened_again_from_a_foreign_stream(chronicle: Chronicle) -> None:
    dispatch(chronicle)
    frame(chronicle, "frame.committed", meta={"row_count": 50})
    dispatch(chronicle, path=f"execution/{FIRST_ID}/frame/99")
    state = FoldState([FRAME])
    state.apply_many(chronicle.events)
    assert list(state.rows("frame")) == []
    assert state.checksums()["frame"]["rows"] == 1


def test_events_without_the_id_touch_no_row(chronicle: Chronicle) -> None:
    event = chronicle.add("step.entered", node_name="a")
    assert (FRAME.key(event), STAGE.key(event)) == (None, None)


def test_a_closed_stage_gives_one_whole_row(chronicle: Chronicle) -> None:
    opened = open_stage(chronicle)
    dispatch(chronicle)
    dispatch(chronicle, attempt=2)
    frame(chronicle, "frame.committed", meta={"row_count": 50, "failed_count": 4})
    dispatch(chronicle, frame_id=4)
    frame(chronicle, "frame.failed", frame_id=4)
    closed = chronicle.add("stage.closed", node_name="each", stage_id=2, status="failed", error="a frame failed")
    assert stage_row(chronicle) == {
        "stage_id": "2",
        "execution_id": str(FIRST_ID),
        "loop_id": "7",
        "step_name": "each",
        "kind": "loop",
        "dsl_ref": "pull@1",
        "frame_policy": {"max_rows": 50},
        "status": "FAILED",
        "frames_dispatched": 2,
        "frames_committed": 1,
        "frames_failed": 1,
        "rows": 50,
        "rows_failed": 4,
        "started_at": "2026-05-16T12:00:00.250000Z",
        "ended_at": "2026-05-16T12:00:01.750000Z",
        "opened_event_id": str(opened.event_id),
        "closed_event_id": str(closed.event_id),
        "error": "a frame failed",
    }


def test_a_closed_stage_counts_no_more(chronicle: Chronicle) -> None:
    open_stage(chronicle)
    chronicle.add("stage.closed", node_name="each", stage_id=2, status="completed")
    before = stage_row(chronicle)
    dispatch(chronicle)
    assert stage_row(chronicle) == before


def test_a_stage_that_is_opened_twice_stays_as_it_was_opened(chronicle: Chronicle) -> None:
    opened = open_stage(chronicle)
    open_stage(chronicle)
    assert stage_row(chronicle)["opened_event_id"] == str(opened.event_id)


def test_a_frame_makes_no_stage(chronicle: Chronicle) -> None:
    dispatch(chronicle)
    assert rows_of(chronicle, STAGE) == {}
