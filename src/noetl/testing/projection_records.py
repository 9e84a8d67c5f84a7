"""What a projection store must do besides keeping rows: build shards anew, record failures, references and snapshots."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from noetl.errors import InputError
from noetl.model.mark import Mark
from noetl.project.port import Failure, ProjectionStore, Replaced
from noetl.testing.projection_samples import (
    BILLING,
    CARE,
    EXECUTION,
    OTHER,
    SHARD,
    event,
    folded,
    ids_of,
    rows_of,
    snapshot,
)


class ProjectionReplacementContract:
    """Building a shard anew."""

    async def _replaced_by(self, store: ProjectionStore, row_id: str, error: type[Exception] | None = None) -> None:
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded(row_id)])
            await replacement.finish(9, {})
            if error is not None:
                raise error

    async def test_a_rebuilt_shard_takes_the_place_of_the_old_and_is_counted(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("same"), folded("wrong"), folded("gone")], [event(1)])
        await store.save_projections(SHARD + 1, 0, 2, [folded("aside", shard=SHARD + 1)], [])
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("same")])
            await replacement.put([folded("wrong", row={"status": "RIGHT"}), folded("new")])
            replaced = await replacement.finish(6, {"frame": 2})
        assert replaced == Replaced(before=3, after=3, changed=1, added=1, removed=1)
        assert await ids_of(store) == ["aside", "new", "same", "wrong"]
        assert await ids_of(store, filters={"status": "RIGHT"}) == ["wrong"]
        assert await store.checkpoints() == Mark.zero().with_position(SHARD, 6).with_position(SHARD + 1, 2)

    async def test_readers_see_the_old_rows_until_the_rebuild_ends(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("old")], [])
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("new")])
            assert await ids_of(store) == ["old"]
            await replacement.finish(9, {})
            assert await ids_of(store) == ["old"]
            assert (await store.checkpoints()).positions[SHARD] == 4
        assert await ids_of(store) == ["new"]

    async def test_a_rebuild_that_fails_changes_nothing(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("old")], [])
        with pytest.raises(ZeroDivisionError):
            await self._replaced_by(store, "new", ZeroDivisionError)
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("unfinished")])
        assert await ids_of(store) == ["old"]
        assert (await store.checkpoints()).positions[SHARD] == 4

    async def test_a_rebuild_takes_other_folds_in(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [], [], {"frame": 1})
        async with store.replacing(SHARD) as replacement:
            await replacement.finish(4, {"frame": 2})
        assert await store.save_projections(SHARD, 4, 5, [], [], {"frame": 2})

    async def test_a_row_that_two_shards_make_stops_the_rebuild(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD + 1, 0, 2, [folded("mine", shard=SHARD + 1)], [])
        with pytest.raises(InputError, match="row 'mine' of frame"):
            await self._replaced_by(store, "mine")
        assert [row.folded.shard for row in await rows_of(store)] == [SHARD + 1]


class ProjectionRecordsContract:
    """Failures and snapshots."""

    async def test_a_failure_is_shown_until_the_shard_moves_on(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded()], [])
        failure = Failure("fold_failed", "it raised", "mend it", 5, "77", "business_object/x")
        await store.record_failure(SHARD, 4, failure)
        state = (await store.shard_states())[SHARD]
        assert state.failure is not None
        assert state.failure.since is not None
        assert msgspec.structs.replace(state.failure, since=None) == failure
        assert (state.shard, state.position, state.rows) == (SHARD, 4, 1)
        await store.record_failure(SHARD, 4, failure)
        assert (await store.shard_states())[SHARD].failure == state.failure
        await store.save_projections(SHARD, 4, 5, [], [])
        assert [each.failure for each in await store.shard_states()] == [None] * 16

    async def test_a_failure_at_a_checkpoint_that_has_moved_is_not_recorded(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [], [])
        await store.record_failure(SHARD, 3, Failure("fold_failed", "it raised"))
        assert (await store.shard_states())[SHARD].failure is None

    async def test_snapshots_come_back_the_newest_first(self, store: ProjectionStore) -> None:
        for version in (10, 30, 20):
            await store.save_snapshot(snapshot(version))
        found = await store.load_snapshots(CARE, "execution", str(EXECUTION))
        assert [msgspec.structs.replace(each, created_at=None) for each in found] == [
            snapshot(30),
            snapshot(20),
            snapshot(10),
        ]
        assert all(each.created_at is not None for each in found)
        upto = await store.load_snapshots(CARE, "execution", str(EXECUTION), upto=20)
        assert [each.version for each in upto] == [20, 10]
        assert await store.load_snapshots(CARE, "execution", str(EXECUTION), upto=9) == []
        assert await store.load_snapshots(CARE, "organization", str(EXECUTION)) == []

    async def test_a_snapshot_saved_again_changes_nothing(self, store: ProjectionStore) -> None:
        await store.save_snapshot(snapshot())
        first = await store.load_snapshots(CARE, "execution", str(EXECUTION))
        await store.save_snapshot(snapshot(checksum="d" * 64))
        assert await store.load_snapshots(CARE, "execution", str(EXECUTION)) == first

    async def test_snapshots_are_the_organizations_own(self, store: ProjectionStore) -> None:
        await store.save_snapshot(snapshot())
        await store.save_snapshot(snapshot(11, OTHER))
        assert [each.version for each in await store.load_snapshots(OTHER, "execution", str(EXECUTION))] == [11]
        assert await store.load_snapshots(BILLING, "execution", str(EXECUTION)) == []

    async def test_a_row_keeps_the_execution_that_opened_it(self, store: ProjectionStore) -> None:
        row = folded("i1", projection="business_object/invoice", execution_id=42)
        await store.save_projections(SHARD, 0, 1, [row], [])
        await store.save_projections(SHARD, 1, 2, [replace(row, last_position=2, row={"total": 1})], [])
        (found,) = await rows_of(store, projection="business_object/invoice", filters={"execution_id": 42})
        assert (found.folded.execution_id, found.folded.last_position) == (42, 2)
