"""The fold state: redelivery, batches, snapshots and checksums. What holds for any history is in the property tests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from blake3 import blake3
from tests.properties.histories import FIRST_ID, Chronicle, changed

from noetl.errors import Unsupported
from noetl.kernel.projections.folds.checksum import Tally, canonical_row, row_checksum
from noetl.kernel.projections.folds.fold import FoldedRow, Row, RowKey
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.canonical import canonical_json
from noetl.model.event import Event

GOLDEN = {
    "execution": "63a348e50d8c65b07f4b34d56236faa48fe4ff1aef7110a0cc6fd67a4fae2282",
    "stage": "85878557721ed8ecc2fac33b5e3cfacfe2800313cfc1d21f9c19c932c12c8b9f",
    "frame": "cc3dcb94528d5a3d193732a86d0c8be598f4bc3adc3c511d32769520105b57f8",
    "loop": "84f3178d88cd850a5a644a022cc67fe0f046b1e9f947c2caff306f6a03bf3e9e",
    "fanout": "03304ac2c8d532c23ddb1f417db714b97800e4269813c8d63d290ab01fecd959",
}


@pytest.fixture
def chronicle() -> Chronicle:
    """A run with one framed loop that has not ended yet."""
    written = Chronicle()
    written.add("playbook.initialized")
    written.add("loop.started", node_name="each", loop_id=7, meta={"collection_size": 5, "mode": "parallel"})
    frame = {"stage_id": 1, "frame_id": 3, "loop_id": 7}
    written.add("frame.dispatched", meta={"attempt": 1, "worker": "w", "row_count": 5}, **frame)
    written.add("frame.committed", meta={"attempt": 1, "row_count": 5}, **frame)
    return written


def folded(events: list[Event], **options: Any) -> FoldState:
    state = FoldState(built_in_folds(), **options)
    state.apply_many(events)
    return state


def test_events_at_or_below_the_last_position_are_ignored(chronicle: Chronicle) -> None:
    state = folded(chronicle.events)
    before = state.export()
    assert [state.apply(event) for event in chronicle.events] == [False] * 4
    assert state.export() == before
    assert state.positions == {chronicle.events[0].shard: 4}


def test_a_gap_in_positions_is_fine(chronicle: Chronicle) -> None:
    far = changed(chronicle.events[1], position=900)
    state = FoldState(built_in_folds())
    assert state.apply_many([chronicle.events[0], far]) == 2
    assert state.checksums()["loop"]["rows"] == 1


def test_an_ended_row_leaves_memory_and_is_handed_over(chronicle: Chronicle) -> None:
    left: list[FoldedRow] = []
    state = folded(chronicle.events, on_ended=left.append)
    assert [row.key for row in left] == [RowKey("default", "default", "frame", f"{FIRST_ID}/3")]
    assert (left[0].first_position, left[0].last_position) == (3, 4)
    assert list(state.rows("frame")) == []
    assert state.checksums()["frame"] == {"rows": 1, "checksum": row_checksum(left[0])}


def test_a_row_names_the_execution_that_opened_it(chronicle: Chronicle) -> None:
    (row,) = folded(chronicle.events).rows("loop")
    assert row.execution_id == FIRST_ID


def test_only_the_named_projections_forget_their_ended_rows(chronicle: Chronicle) -> None:
    result = {"status": "ok", "context": {"total": 5, "completed": 5, "failed": 0}}
    chronicle.add("loop.done", node_name="each", loop_id=7, result=result)
    left: list[FoldedRow] = []
    state = folded(chronicle.events, evict={"frame"}, on_ended=left.append)
    assert [row.key.projection for row in left] == ["frame"]
    assert [row.row["completed"] for row in state.rows("loop")] == [True]
    assert state.checksum() == folded(chronicle.events).checksum()
    restored = FoldState.restore(built_in_folds(), state.export(), evict={"frame"})
    assert restored.export() == state.export()


def test_touched_rows_are_told_once(chronicle: Chronicle) -> None:
    state = folded(chronicle.events[:2], keep_ended=True)
    assert [row.key.projection for row in state.touched()] == ["execution", "loop"]
    assert state.touched() == []
    state.apply(chronicle.events[2])
    assert {row.key.projection for row in state.touched()} == {"execution", "frame"}


def test_a_frame_outside_any_loop_moves_no_loop(chronicle: Chronicle) -> None:
    lonely = {"stage_id": 1, "frame_id": 4, "meta": {"attempt": 1, "row_count": 5}}
    before = folded(chronicle.events).checksums()["loop"]
    chronicle.add("frame.committed", **lonely)
    assert folded(chronicle.events).checksums()["loop"] == before


def test_a_state_names_the_versions_of_its_folds() -> None:
    assert FoldState(built_in_folds()).versions == {fold.projection: fold.version for fold in built_in_folds()}


def test_the_rows_to_load_are_known_before_an_event_is_folded(chronicle: Chronicle) -> None:
    state = FoldState(built_in_folds())
    opening = {(key.projection, key.row_id) for key in state.keys_of(chronicle.events[2:])}
    shared = {("execution", str(FIRST_ID)), ("stage", f"{FIRST_ID}/1"), ("loop", f"{FIRST_ID}/7")}
    assert opening == shared, "the frame opens here, so there is none to load"
    outside = chronicle.add("step.entered", node_name="a", path="elsewhere")
    assert state.keys_of([outside]) == []


def test_a_row_that_opened_before_a_batch_is_loaded_for_it(chronicle: Chronicle) -> None:
    opening, later = chronicle.events[2:]
    state = FoldState(built_in_folds())
    state.skip_to(opening.shard, opening.position)
    for batch in ([later], [opening, later]):
        assert ("frame", f"{FIRST_ID}/3") in {(key.projection, key.row_id) for key in state.keys_of(batch)}
    state.skip_to(later.shard, later.position)
    assert state.keys_of([opening, later]) == []


def test_a_seeded_row_goes_on_where_it_stood(chronicle: Chronicle) -> None:
    first = folded(chronicle.events[:2], keep_ended=True)
    second = FoldState(built_in_folds(), keep_ended=True)
    second.seed(first.touched())
    second.skip_to(chronicle.events[1].shard, 2)
    second.skip_to(chronicle.events[1].shard, 1)
    assert second.apply_many(chronicle.events) == 2
    assert second.checksums() == folded(chronicle.events, keep_ended=True).checksums()


def test_a_seeded_row_of_another_fold_version_is_refused(chronicle: Chronicle) -> None:
    (row,) = folded(chronicle.events).rows("loop")
    old = replace(row, version=0)
    with pytest.raises(Unsupported, match="projection loop were made by version 0 of its fold, and this is version 1"):
        FoldState(built_in_folds()).seed([old])


def test_a_snapshot_survives_json_and_is_not_changed_by_later_events(chronicle: Chronicle) -> None:
    state = folded(chronicle.events[:3])
    exported = state.export()
    text = json.dumps(exported)
    state.apply(chronicle.events[3])
    assert json.dumps(exported) == text
    resumed = FoldState.restore(built_in_folds(), json.loads(text))
    resumed.apply_many(chronicle.events)
    assert resumed.export() == state.export()


def test_a_restored_state_does_not_write_into_the_snapshot(chronicle: Chronicle) -> None:
    exported = folded(chronicle.events[:3]).export()
    text = json.dumps(exported)
    FoldState.restore(built_in_folds(), exported).apply(chronicle.events[3])
    assert json.dumps(exported) == text


def test_ended_rows_of_a_snapshot_leave_memory_when_it_is_restored(chronicle: Chronicle) -> None:
    left: list[FoldedRow] = []
    kept = folded(chronicle.events, keep_ended=True)
    restored = FoldState.restore(built_in_folds(), kept.export(), on_ended=left.append)
    assert [row.key.projection for row in left] == ["frame"]
    assert restored.checksum() == kept.checksum()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda snapshot: snapshot.update(format=0), "another format"),
        (lambda snapshot: snapshot.update(upcasters="0" * 64), "other upcasters"),
        (lambda snapshot: snapshot["projections"].pop("loop"), "made by other folds"),
        (lambda snapshot: snapshot["projections"]["loop"].update(version=9), "version 9 of its fold"),
    ],
)
def test_a_snapshot_made_by_other_code_is_refused(chronicle: Chronicle, change: Any, why: str) -> None:
    exported = folded(chronicle.events).export()
    change(exported)
    with pytest.raises(Unsupported, match=why):
        FoldState.restore(built_in_folds(), exported)


def test_old_events_are_upcast_before_they_are_folded(chronicle: Chronicle) -> None:
    upcasters = Upcasters()
    upcasters.register("acme.note", 1, lambda event: changed(event, schema_version=2, node_name="renamed"))
    chronicle.add("business.note.added", schema_name="acme.note")
    (row,) = folded(chronicle.events, upcasters=upcasters).rows("execution")
    assert row.row["last_node_name"] == "renamed"


def test_an_event_newer_than_this_build_is_refused_and_changes_nothing(chronicle: Chronicle) -> None:
    state = folded(chronicle.events[:3])
    before = state.export()
    with pytest.raises(Unsupported, match=r"noetl\.frame\.committed version 2"):
        state.apply(changed(chronicle.events[3], schema_version=2))
    assert state.export() == before


def test_a_row_checksum_is_the_digest_of_the_canonical_row_with_its_name() -> None:
    key = RowKey("acme", "zürich", "business_object/ключ", 'i"1')
    row = {"b": 1.0, "a": [None, True, {"\N{GRINNING FACE}": "x"}]}
    named = {
        "projection": key.projection,
        "id": key.row_id,
        "tenant_id": key.tenant_id,
        "organization_id": key.organization_id,
        "version": 3,
        "row": row,
    }
    assert row_checksum(FoldedRow(key, 3, FIRST_ID, 0, 1, 2, row)) == blake3(canonical_json(named)).hexdigest()


@pytest.mark.parametrize(
    "row",
    [
        {"b": 1, "a": None, "c": {"z": True, "y": "x"}},
        {"nested": {"deep": {"b": 1, "a": 0.5}}},
        {"list": [2, 1]},
        {"share": 0.1},
        {"\N{GRINNING FACE}": 1, "\ufb33": 2},
        {"text": "zerbrochen \N{COLLISION SYMBOL}"},
    ],
)
def test_a_row_is_stored_as_its_canonical_json_with_its_checksum(row: Row) -> None:
    folded_row = FoldedRow(RowKey("t", "o", "loop", "1/2"), 1, FIRST_ID, 0, 1, 1, row)
    assert canonical_row(folded_row) == (canonical_json(row), row_checksum(folded_row))


def test_a_row_that_json_cannot_carry_has_no_checksum() -> None:
    row = FoldedRow(RowKey("t", "o", "loop", "1/2"), 1, FIRST_ID, 0, 1, 1, {"count": 2**60})
    with pytest.raises(ValueError, match=r"\$\.count is an integer beyond"):
        row_checksum(row)


def test_a_state_checksum_is_the_digest_of_counts_and_sums(chronicle: Chronicle) -> None:
    state = folded(chronicle.events)
    parts = {name: {"rows": part["rows"], "sum": part["checksum"]} for name, part in state.checksums().items()}
    assert state.checksum() == blake3(canonical_json(parts)).hexdigest()


def test_a_tally_wraps_around_and_comes_back() -> None:
    tally = Tally()
    tally.add(2**256 - 1)
    tally.add(3)
    assert (tally.rows, tally.total, tally.hex()) == (2, 2, "2".rjust(64, "0"))
    tally.remove(3)
    assert tally == Tally(1, 2**256 - 1)
    tally.merge(Tally(4, 1))
    assert tally == Tally(5, 0)


def test_the_checksums_of_this_history_never_change(chronicle: Chronicle) -> None:
    """A change here means that rows differ from those in stores and snapshots: raise the fold's version with it."""
    chronicle.add("stage.opened", node_name="each", stage_id=1, meta={"kind": "loop", "dsl_ref": "each"})
    chronicle.add("loop.fanout.started", node_name="all", loop_id=9, meta={"total_shards": 3})
    assert {name: part["checksum"] for name, part in folded(chronicle.events).checksums().items()} == GOLDEN


def test_only_rows_of_the_evicted_projections_leave_memory(chronicle: Chronicle) -> None:
    result = {"status": "ok", "context": {"total": 5, "completed": 5, "failed": 0}}
    chronicle.add("loop.done", node_name="each", loop_id=7, result=result)
    left: list[FoldedRow] = []
    state = folded(chronicle.events, evict={"frame"}, on_ended=left.append)
    assert [row.key.projection for row in left] == ["frame"]
    assert [row.row["completed"] for row in state.rows("loop")] == [True]
    assert state.checksums() == folded(chronicle.events).checksums()


def test_an_ended_row_that_stays_absorbs_what_comes_after_a_restore(chronicle: Chronicle) -> None:
    result = {"status": "ok", "context": {"total": 5, "completed": 5, "failed": 0}}
    chronicle.add("loop.done", node_name="each", loop_id=7, result=result)
    exported = folded(chronicle.events, evict={"frame"}).export()
    chronicle.add("command.completed", node_name="each", loop_id=7, command_id="late")
    resumed = FoldState.restore(built_in_folds(), exported, evict={"frame"})
    resumed.apply_many(chronicle.events)
    assert resumed.checksums() == folded(chronicle.events).checksums()
