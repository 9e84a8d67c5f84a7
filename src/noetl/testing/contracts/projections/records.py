"""What a projection store must do besides keeping rows: build shards anew, record failures, references and snapshots."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from noetl.errors import InputError
from noetl.kernel.projections.stores.port import Failure, ProjectionStore, Replaced, StreamChanges
from noetl.model.broken_stream import broken_at
from noetl.model.mark import Mark
from noetl.testing.contracts.projections.samples import (
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


class BrokenStreamsContract:
    """Streams that stand still while their shard goes on."""

    async def test_broken_streams_move_with_the_checkpoint(self, store: ProjectionStore) -> None:
        """INV-154."""
        first = broken_at(event(2), "payload_missing", "it is gone")
        assert await store.save_projections(SHARD, 0, 3, [], [], None, StreamChanges(broken=(first,), held=(event(2),)))
        (known,) = await store.broken_streams(SHARD)
        assert (known.stream, known.position, known.since is None) == (first.stream, 2, False)
        assert await store.broken_streams(SHARD + 1) == []
        assert await store.broken_streams() == [known]
        # Whoever folded without knowing of it folds anew.
        assert not await store.save_projections(SHARD, 3, 4, [folded("1")], [])
        assert await ids_of(store) == []
        assert [one.position async for one in store.held_events(known)] == [2]

    async def test_a_stream_that_goes_on_is_forgotten_with_what_it_held(self, store: ProjectionStore) -> None:
        """INV-154."""
        first = broken_at(event(2), "payload_missing", "it is gone")
        changes = StreamChanges(broken=(first,), held=(event(2), event(3)))
        assert await store.save_projections(SHARD, 0, 3, [], [], None, changes)
        later = broken_at(event(3), "corrupt", "it is damaged")
        assert await store.save_projections(
            SHARD, 3, 3, [folded("1")], [], None, StreamChanges(known=(first,), broken=(later,))
        )
        (known,) = await store.broken_streams(SHARD)
        assert (known.position, known.code) == (3, "corrupt")
        assert [one.position async for one in store.held_events(first)] == [3]
        mended = StreamChanges(known=(later,), mended=(later.stream,))
        assert await store.save_projections(SHARD, 3, 3, [], [], None, mended)
        assert await store.broken_streams() == []
        assert [one async for one in store.held_events(first)] == []

    async def test_an_organization_sees_its_own_broken_streams(self, store: ProjectionStore) -> None:
        """INV-154."""
        first = broken_at(event(2), "payload_missing", "it is gone")
        await store.save_projections(SHARD, 0, 3, [], [], None, StreamChanges(broken=(first,)))
        for scope in (CARE, OTHER):
            async with store.snapshot_view(scope) as view:
                assert [one.position for one in await view.broken_streams()] == [2] * (scope == first.scope)

    async def test_a_rebuilt_shard_has_the_broken_streams_of_the_rebuild(self, store: ProjectionStore) -> None:
        """INV-154."""
        first = broken_at(event(2), "payload_missing", "it is gone")
        await store.save_projections(SHARD, 0, 3, [], [], None, StreamChanges(broken=(first,), held=(event(2),)))
        async with store.replacing(SHARD) as replacement:
            await replacement.finish(3, {}, [broken_at(event(3), "corrupt", "it is damaged")])
        assert [one.position for one in await store.broken_streams()] == [3]
        async with store.replacing(SHARD) as replacement:
            await replacement.finish(3, {})
        assert await store.broken_streams() == []


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
