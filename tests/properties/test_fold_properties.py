"""What must hold for any history: forgetting, splitting, repeating and resuming never change what is folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.histories import INVOICE_POSTED, histories

from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.checksum import Tally, row_checksum
from noetl.kernel.projections.folds.fold import FoldedRow, Row, RowKey, copied, moment
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.canonical import canonical_json
from noetl.model.event import Event, time_text


@business_object("invoice", events=[INVOICE_POSTED], ended=lambda row: row["total"] > 8)
def invoice(row: Row | None, event: Event) -> Row | None:
    row = row or {"total": 0, "first": event.event_type}
    row["total"] += event.meta["amount"]
    return row


FOLDS = (*built_in_folds(), invoice)


def folded(events: list[Event], **options: Any) -> FoldState:
    state = FoldState(FOLDS, **options)
    state.apply_many(events)
    return state


@given(histories())
def test_a_state_that_forgets_ended_rows_agrees_with_one_that_keeps_them_after_every_event(events: list[Event]) -> None:
    forgetting, keeping = FoldState(FOLDS), FoldState(FOLDS, keep_ended=True)
    forgetting_some = FoldState(FOLDS, evict={"frame", "stage"})
    for event in events:
        assert forgetting.apply(event) is keeping.apply(event) is forgetting_some.apply(event) is True
        assert forgetting.checksums() == keeping.checksums() == forgetting_some.checksums()


@given(histories())
def test_rows_handed_over_when_they_leave_and_rows_still_held_are_all_the_rows(events: list[Event]) -> None:
    left: list[FoldedRow] = []
    forgetting, keeping = folded(events, on_ended=left.append), folded(events, keep_ended=True)
    for fold in FOLDS:
        parts = [row for row in left if row.key.projection == fold.projection] + list(forgetting.rows(fold.projection))
        whole = list(keeping.rows(fold.projection))
        assert sorted(parts, key=lambda row: row.key) == sorted(whole, key=lambda row: row.key)


@given(histories())
def test_folding_shard_by_shard_equals_folding_all(events: list[Event]) -> None:
    """INV-18."""
    assert folded(sorted(events, key=lambda event: event.shard)).checksum() == folded(events).checksum()


@given(histories())
def test_shards_folded_apart_add_up_to_the_whole(events: list[Event]) -> None:
    sums = {fold.projection: Tally() for fold in FOLDS}
    for shard in {event.shard for event in events}:
        for projection, tally in folded([event for event in events if event.shard == shard]).tallies().items():
            sums[projection].merge(tally)
    assert sums == folded(events).tallies()


@given(histories(), st.data())
def test_duplicates_and_redelivery_change_nothing(events: list[Event], data: st.DataObject) -> None:
    """INV-18."""
    state = FoldState(FOLDS)
    for number, event in enumerate(events):
        again = data.draw(st.lists(st.integers(0, number), max_size=3))
        state.apply(event)
        assert state.apply_many(events[index] for index in sorted(again)) == 0
    assert state.apply_many(events) == 0
    assert state.export() == folded(events).export()


@given(histories(), st.data(), st.booleans())
def test_a_snapshot_and_the_tail_equal_the_full_fold(events: list[Event], data: st.DataObject, keep: bool) -> None:
    cut = data.draw(st.integers(0, len(events)))
    exported = folded(events[:cut], keep_ended=keep).export()
    canonical_json(exported)
    resumed = FoldState.restore(FOLDS, exported)
    # The reader starts a little too early, as readers do.
    resumed.apply_many(events[max(0, cut - 3) :])
    assert resumed.checksums() == folded(events).checksums()
    assert resumed.checksum() == folded(events).checksum()


@given(histories(), st.integers(1, 7))
def test_a_live_projector_that_loads_and_stores_rows_batch_by_batch_agrees(events: list[Event], size: int) -> None:
    store: dict[RowKey, FoldedRow] = {}
    positions: dict[int, int] = {}
    for start in range(0, len(events), size):
        # One event of the batch before is delivered again.
        batch = events[max(0, start - 1) : start + size]
        state = FoldState(FOLDS, keep_ended=True)
        for shard, position in positions.items():
            state.skip_to(shard, position)
        state.seed(_loaded(store[key]) for key in state.keys_of(batch) if key in store)
        state.apply_many(batch)
        store.update({row.key: _loaded(row) for row in state.touched()})
        positions = state.positions
    whole = folded(events, keep_ended=True)
    assert store == {row.key: row for fold in FOLDS for row in whole.rows(fold.projection)}


def _loaded(row: FoldedRow) -> FoldedRow:
    return replace(row, row=copied(row.row))


@given(histories())
def test_a_row_says_which_positions_made_it(events: list[Event]) -> None:
    state = folded(events, keep_ended=True)
    positions = {(event.shard, event.position) for event in events}
    for fold in FOLDS:
        for row in state.rows(fold.projection):
            assert row.first_position <= row.last_position
            assert {(row.shard, row.first_position), (row.shard, row.last_position)} <= positions


@given(histories(max_strays=4), st.data())
@settings(max_examples=40)
def test_a_row_checksum_changes_if_any_field_changes(events: list[Event], data: st.DataObject) -> None:
    state = folded(events, keep_ended=True)
    rows = [row for fold in FOLDS for row in state.rows(fold.projection)]
    if not rows:
        return
    row = data.draw(st.sampled_from(rows))
    field = data.draw(st.sampled_from(sorted(row.row)))
    other = {**row.row, field: [row.row[field], "changed"]}
    less = {name: value for name, value in row.row.items() if name != field}
    variants = [
        row,
        replace(row, row=other),
        replace(row, row=less),
        replace(row, version=row.version + 1),
        *(replace(row, key=row.key._replace(**{part: "changed"})) for part in RowKey._fields),
    ]
    assert len({row_checksum(variant) for variant in variants}) == len(variants)


@given(st.lists(st.integers(0, 2**256 - 1)), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_to_a_tally(numbers: list[int], shuffle: Any) -> None:
    one, other = Tally(), Tally()
    for number in numbers:
        one.add(number)
    shuffle.shuffle(numbers)
    for number in [*numbers, 7]:
        other.add(number)
    other.remove(7)
    assert one == other


_ZONES: list[Callable[[], timezone]] = [
    lambda: UTC,
    lambda: timezone(timedelta(0)),
    lambda: timezone(timedelta(hours=-5)),
]


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9999, 1, 1)),  # noqa: DTZ001 - the zone is added below
    st.sampled_from(_ZONES),
)
@example(datetime(2026, 5, 16, 12), _ZONES[0])  # noqa: DTZ001
def test_the_fast_way_to_write_a_time_gives_the_same_text(naive: datetime, zone: Callable[[], timezone]) -> None:
    value = naive.replace(tzinfo=zone())
    assert moment(value) == time_text(value)
