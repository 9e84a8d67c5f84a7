"""The loop and fan-out folds: one row of progress per activation."""

from __future__ import annotations

import pytest
from tests.properties.histories import FIRST_ID, Chronicle

from noetl.kernel.projections.folds.fold import Fold, Row
from noetl.kernel.projections.folds.loop import FANOUT, LOOP
from noetl.kernel.projections.folds.state import FoldState


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


def rows_of(chronicle: Chronicle, fold: Fold) -> dict[str, Row]:
    state = FoldState([fold], keep_ended=True)
    state.apply_many(chronicle.events)
    return {folded.key.row_id: folded.row for folded in state.rows(fold.projection)}


def start_loop(chronicle: Chronicle, size: int | None = 8) -> None:
    chronicle.add("loop.started", node_name="each", loop_id=7, meta={"collection_size": size, "mode": "cursor"})


def commit(chronicle: Chronicle, rows: int, failed: int, *, execution_id: int = FIRST_ID) -> None:
    meta = {"attempt": 1, "row_count": rows, "failed_count": failed}
    frame_id = len(chronicle.events) + 1
    chronicle.add("frame.committed", execution_id=execution_id, stage_id=1, frame_id=frame_id, loop_id=7, meta=meta)


def finish_loop(chronicle: Chronicle) -> None:
    result = {"status": "ok", "context": {"total": 9, "completed": 9, "failed": 0}}
    chronicle.add("loop.done", node_name="each", loop_id=7, result=result)


def test_a_finished_loop_gives_one_whole_row(chronicle: Chronicle) -> None:
    start_loop(chronicle, size=None)
    commit(chronicle, 5, 1)
    commit(chronicle, 4, 0)
    finish_loop(chronicle)
    assert rows_of(chronicle, LOOP) == {
        f"{FIRST_ID}/7": {
            "loop_id": "7",
            "execution_id": str(FIRST_ID),
            "step_name": "each",
            "started_at": "2026-05-16T12:00:00.250000Z",
            "ended_at": "2026-05-16T12:00:01.000000Z",
            "total": 9,
            "done": 8,
            "failed": 1,
            "collection_ref": None,
            "mode": "cursor",
            "completed": True,
        }
    }


def test_a_loop_that_knew_its_total_keeps_it(chronicle: Chronicle) -> None:
    start_loop(chronicle, size=8)
    finish_loop(chronicle)
    assert rows_of(chronicle, LOOP)[f"{FIRST_ID}/7"]["total"] == 8


def test_a_finished_loop_counts_no_more(chronicle: Chronicle) -> None:
    start_loop(chronicle)
    finish_loop(chronicle)
    commit(chronicle, 5, 0)
    assert rows_of(chronicle, LOOP)[f"{FIRST_ID}/7"]["done"] == 0


def test_a_loop_that_is_started_twice_is_one_loop(chronicle: Chronicle) -> None:
    start_loop(chronicle)
    commit(chronicle, 5, 0)
    start_loop(chronicle)
    assert rows_of(chronicle, LOOP)[f"{FIRST_ID}/7"]["done"] == 5


def test_frames_of_another_execution_do_not_move_a_loop_with_the_same_id(chronicle: Chronicle) -> None:
    start_loop(chronicle)
    commit(chronicle, 5, 0, execution_id=FIRST_ID + 1)
    assert rows_of(chronicle, LOOP)[f"{FIRST_ID}/7"]["done"] == 0


def test_progress_without_a_start_makes_no_row(chronicle: Chronicle) -> None:
    commit(chronicle, 5, 0)
    chronicle.add("loop.shard.done", node_name="each", loop_id=7, shard_id="a")
    assert rows_of(chronicle, LOOP) == rows_of(chronicle, FANOUT) == {}


def test_a_frame_outside_any_loop_touches_no_loop(chronicle: Chronicle) -> None:
    event = chronicle.add("frame.failed", stage_id=1, frame_id=1, meta={"attempt": 1})
    assert LOOP.key(event) is None


def test_a_finished_fan_out_gives_one_whole_row(chronicle: Chronicle) -> None:
    shard = {"node_name": "all", "loop_id": 9}
    chronicle.add("loop.fanout.started", meta={"total_shards": 3}, **shard)
    chronicle.add("loop.shard.done", shard_id="a", **shard)
    chronicle.add("loop.shard.failed", shard_id="b", **shard)
    chronicle.add("loop.fanout.started", meta={"total_shards": 5}, **shard)
    result = {"status": "failed", "context": {"done": 1, "failed": 1, "total": 3}}
    chronicle.add("loop.fanin.completed", result=result, **shard)
    chronicle.add("loop.shard.done", shard_id="c", **shard)
    assert rows_of(chronicle, FANOUT) == {
        f"{FIRST_ID}/9": {
            "loop_id": "9",
            "execution_id": str(FIRST_ID),
            "step_name": "all",
            "started_at": "2026-05-16T12:00:00.250000Z",
            "ended_at": "2026-05-16T12:00:01.250000Z",
            "total_shards": 3,
            "done": 1,
            "failed": 1,
            "status": "failed",
        }
    }
