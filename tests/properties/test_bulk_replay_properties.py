"""What must hold for any history: read as columns and summed in parts, it comes to what its events come to."""

from __future__ import annotations

from hypothesis import given
from tests.properties.histories import histories

from noetl.kernel.projections.folds.checksum import Sums
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.event import Event
from noetl.spark.bulk_replay.event_decoder import HEARD, heard_events, whole_events
from noetl.spark.source.upcasters import as_batch


@given(histories())
def test_events_read_as_columns_are_the_same_events(events: list[Event]) -> None:
    """INV-99."""
    assert [event for page in whole_events([as_batch(events)]) for event in page] == events


@given(histories())
def test_the_columns_that_are_read_are_all_that_folds_of_ours_look_at(events: list[Event]) -> None:
    """INV-99."""
    whole, heard = FoldState(built_in_folds(), keep_ended=True), FoldState(built_in_folds(), keep_ended=True)
    whole.apply_many(events)
    batch = as_batch(events).select(HEARD)
    for page in heard_events([batch.slice(0, 7), batch.slice(7)]):
        heard.apply_many(page)
    for fold in built_in_folds():
        assert list(heard.rows(fold.projection)) == list(whole.rows(fold.projection))
    assert heard.checksum() == whole.checksum()


@given(histories())
def test_sums_of_shards_add_up_to_the_sum_of_all(events: list[Event]) -> None:
    """INV-99, INV-100."""
    state, shards = FoldState(built_in_folds(), keep_ended=True), dict[int, Sums]()
    state.apply_many(events)
    whole, added = Sums(), Sums()
    for fold in built_in_folds():
        for folded in state.rows(fold.projection):
            whole.add(folded)
            shards.setdefault(folded.shard, Sums()).add(folded)
    for part in shards.values():
        added.merge(Sums.restore(part.export()))
    assert (added.tallies, added.buckets) == (whole.tallies, whole.buckets)
