"""What every projection store must do, as tests. A subclass gives a `store` fixture."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InputError, Unsupported
from noetl.kernel.projections.folds.checksum import row_checksum
from noetl.kernel.projections.stores.port import Page, ProjectionStore, StoredRow
from noetl.model.mark import Mark
from noetl.testing.contracts.projections.records import (
    BrokenStreamsContract,
    ProjectionRecordsContract,
    ProjectionReplacementContract,
)
from noetl.testing.contracts.projections.samples import (
    BILLING,
    CARE,
    EXECUTION,
    OTHER,
    SHARD,
    event,
    folded,
    ids_of,
    payload,
    rows_of,
)


class ProjectionRowsContract:
    """Rows and checkpoints."""

    async def test_a_new_store_has_no_rows_and_stands_at_zero(self, store: ProjectionStore) -> None:
        assert await store.checkpoints() == Mark.zero()
        assert await store.load_projections([folded().key]) == []
        assert await rows_of(store) == []

    async def test_a_row_comes_back_as_it_was_saved_with_its_checksum(self, store: ProjectionStore) -> None:
        row = folded(last_position=4)
        assert await store.save_projections(SHARD, 0, 4, [row], [])
        assert await store.load_projections([row.key, folded("absent").key]) == [row]
        assert await rows_of(store) == [StoredRow(row, "DISPATCHED", row_checksum(row))]

    async def test_any_json_comes_back(self, store: ProjectionStore) -> None:
        row = folded(
            row={"nul": "a\0b", "large": 1e17, "nested": [{"": [None, True, -0.5]}], "id": "604876797720658689"}
        )
        await store.save_projections(SHARD, 0, 4, [row], [])
        (loaded,) = await store.load_projections([row.key])
        assert loaded == row
        assert row_checksum(loaded) == row_checksum(row)

    async def test_saving_moves_only_the_checkpoint_of_its_shard(self, store: ProjectionStore) -> None:
        assert await store.save_projections(SHARD, 0, 4, [], [])
        assert await store.checkpoints() == Mark.zero().with_position(SHARD, 4)

    async def test_a_later_save_replaces_the_row(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded()], [])
        later = folded(last_position=5, row={"status": "COMMITTED"})
        assert await store.save_projections(SHARD, 4, 5, [later], [])
        assert await rows_of(store) == [StoredRow(later, "COMMITTED", row_checksum(later))]

    @pytest.mark.parametrize("after", [0, 3, 5])
    async def test_a_save_from_another_checkpoint_writes_nothing(self, store: ProjectionStore, after: int) -> None:
        await store.save_projections(SHARD, 0, 4, [], [])
        stale = [folded()], [event(payload_ref=payload())]
        assert not await store.save_projections(SHARD, after, 9, *stale)
        assert await store.checkpoints() == Mark.zero().with_position(SHARD, 4)
        assert await rows_of(store) == []

    async def test_many_rows_are_saved_and_loaded_at_once(self, store: ProjectionStore) -> None:
        rows = [folded(f"{number:05}") for number in range(2500)]
        assert await store.save_projections(SHARD, 0, 4, rows, [])
        loaded = await store.load_projections([row.key for row in rows])
        assert sorted(loaded, key=lambda row: row.key) == rows
        assert await ids_of(store) == [row.key.row_id for row in rows]

    async def test_what_is_loaded_may_be_changed_without_changing_what_is_stored(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded()], [])
        (loaded,) = await store.load_projections([folded().key])
        loaded.row["cursor"]["first"] = 99
        assert await store.load_projections([folded().key]) == [folded()]

    async def test_a_row_that_another_shard_made_is_not_overwritten(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded()], [])
        intruder = folded(shard=SHARD + 1, row={"status": "OTHER"})
        assert not await store.save_projections(SHARD + 1, 0, 2, [folded("2", shard=SHARD + 1), intruder], [])
        assert [row.folded for row in await rows_of(store)] == [folded()]
        assert (await store.checkpoints()).positions[SHARD + 1] == 0

    async def test_a_status_that_is_no_text_is_left_to_the_row(self, store: ProjectionStore) -> None:
        row = folded(row={"status": {"word": "odd"}})
        await store.save_projections(SHARD, 0, 4, [row], [])
        assert [(found.status, found.folded.row) for found in await rows_of(store)] == [(None, row.row)]

    async def test_rows_of_other_folds_are_not_mixed_in(self, store: ProjectionStore) -> None:
        assert await store.save_projections(SHARD, 0, 4, [], [], {"frame": 1})
        assert await store.save_projections(SHARD, 4, 5, [], [], {"frame": 1})
        with pytest.raises(Unsupported, match=r"shard 3 .* frame \(version 1, now version 2\), loop \(none, now vers"):
            await store.save_projections(SHARD, 5, 6, [folded()], [], {"frame": 2, "loop": 1})
        assert await rows_of(store) == []
        assert (await store.checkpoints()).positions[SHARD] == 5


class ProjectionQueriesContract:
    """Queries, pages, views and isolation."""

    async def test_rows_come_in_the_order_of_the_bytes_of_their_ids(self, store: ProjectionStore) -> None:
        ids = ["10", "9", "a", "B", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{COLLISION SYMBOL}", "\ufffd"]
        await store.save_projections(SHARD, 0, 4, [folded(row_id) for row_id in ids], [])
        assert await ids_of(store) == sorted(ids, key=str.encode)

    async def test_filters_choose_by_execution_and_status(self, store: ProjectionStore) -> None:
        rows = [folded("1"), folded("2", execution_id=7), folded("3", row={"status": "DONE"}), folded("4", row={})]
        await store.save_projections(SHARD, 0, 4, rows, [])
        assert await ids_of(store, filters={"execution_id": 7}) == ["2"]
        assert await ids_of(store, filters={"status": "DONE"}) == ["3"]
        assert await ids_of(store, filters={"execution_id": EXECUTION, "status": "DISPATCHED"}) == ["1"]

    @pytest.mark.parametrize("filters", [{"color": "red"}, {"execution_id": "7"}, {"status": 1}])
    async def test_a_filter_that_cannot_be_meant_is_refused(self, store: ProjectionStore, filters: Any) -> None:
        with pytest.raises(InputError, match="filter"):
            await rows_of(store, filters=filters)

    async def test_pages_follow_each_other_without_gap_or_overlap(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded(str(number)) for number in range(5)], [])
        assert await ids_of(store, page=Page(limit=2)) == ["0", "1"]
        assert await ids_of(store, page=Page(after="1", limit=2)) == ["2", "3"]
        assert await ids_of(store, page=Page(after="3", limit=2)) == ["4"]
        with pytest.raises(InputError, match="at least one row"):
            await rows_of(store, page=Page(limit=0))

    async def test_a_query_gives_its_projection_alone(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("1"), folded("2", projection="stage")], [])
        assert await ids_of(store, projection="stage") == ["2"]

    async def test_organizations_with_equal_row_ids_see_only_their_own(self, store: ProjectionStore) -> None:
        rows = [folded(scope=scope, row={"owner": f"{scope}"}) for scope in (CARE, BILLING, OTHER)]
        assert await store.save_projections(SHARD, 0, 4, rows, [])
        for scope, row in zip((CARE, BILLING, OTHER), rows, strict=True):
            assert [found.folded for found in await rows_of(store, scope)] == [row]

    async def test_a_view_gives_rows_and_checkpoints_of_one_moment(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("1"), folded("2", projection="stage")], [])
        async with store.snapshot_view(CARE) as view:
            before = await view.checkpoints()
            await store.save_projections(SHARD, 4, 9, [folded("1", row={}), folded("0")], [])
            assert before == await view.checkpoints() == Mark.zero().with_position(SHARD, 4)
            seen = [row.folded async for row in view.query()]
            assert seen == [folded("1"), folded("2", projection="stage")]
            assert [row.folded.key.row_id async for row in view.query(filters={"execution_id": EXECUTION})] == [
                "1",
                "2",
            ]
        assert await ids_of(store) == ["0", "1"]

    async def test_a_view_sees_its_organization_alone(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("1"), folded("2", OTHER)], [])
        async with store.snapshot_view(OTHER) as view:
            assert [row.folded async for row in view.query()] == [folded("2", OTHER)]

    async def test_a_page_of_all_projections_is_refused(self, store: ProjectionStore) -> None:
        async with store.snapshot_view(CARE) as view:
            with pytest.raises(InputError, match="needs one projection"):
                _ = [row async for row in view.query(page=Page())]

    async def test_a_query_left_early_gives_its_connection_back(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded(str(number)) for number in range(1500)], [])
        for _ in range(20):
            query = store.query(CARE, "frame")
            assert (await anext(query)).folded.key.row_id == "0"
            await query.aclose()  # type: ignore[attr-defined]


class ProjectionStoreContract(
    ProjectionRowsContract,
    ProjectionQueriesContract,
    ProjectionReplacementContract,
    ProjectionRecordsContract,
    BrokenStreamsContract,
):
    """Tests for any projection store."""
