"""What every projection store must do, as tests. A subclass gives a `store` fixture."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from noetl.errors import InputError, Unsupported
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope
from noetl.project.folds.checksum import row_checksum
from noetl.project.folds.fold import FoldedRow, RowKey
from noetl.project.port import Failure, Page, ProjectionStore, Replaced, Snapshot, StoredRow

CARE = Scope("acme", "care")
BILLING = Scope("acme", "billing")
OTHER = Scope("globex", "care")
EXECUTION = 604_876_797_720_658_689
SHARD = 3


def folded(row_id: str = "1/1", scope: Scope = CARE, projection: str = "frame", **fields: Any) -> FoldedRow:
    """Make a row; `row` replaces its content, any other field its lineage."""
    given: dict[str, Any] = {
        "version": 1,
        "execution_id": EXECUTION,
        "shard": SHARD,
        "first_position": 1,
        "last_position": 1,
        "row": {
            "status": "DISPATCHED",
            "cursor": {"first": 0, "share": 0.5},
            "note": "zerbrochen \N{COLLISION SYMBOL}",
        },
    }
    return FoldedRow(RowKey(scope.tenant_id, scope.organization_id, projection, row_id), **{**given, **fields})


def event(position: int = 1, scope: Scope = CARE, **fields: Any) -> Event:
    """Make an event of the shard that the rows here belong to."""
    given: dict[str, Any] = {
        "event_id": EXECUTION + position * 4096,
        "tenant_id": scope.tenant_id,
        "organization_id": scope.organization_id,
        "execution_id": EXECUTION,
        "stream_id": f"execution/{EXECUTION}",
        "aggregate_type": "execution",
        "aggregate_id": str(EXECUTION),
        "event_type": "step.exited",
        "schema_name": "noetl.step.exited",
        "schema_version": 1,
        "event_time": datetime(2026, 5, 16, tzinfo=UTC),
        "ingest_time": datetime(2026, 5, 17, tzinfo=UTC),
        "producer": "tests",
        "stream_version": position,
        "shard": SHARD,
        "position": position,
    }
    return Event(**{**given, **fields})


def payload(scope: Scope = CARE, digit: str = "a", **fields: Any) -> PayloadRef:
    """Make a reference to a payload nobody stored."""
    digest = digit * 64
    uri = payload_uri(scope.tenant_id, scope.organization_id, digest)
    given: dict[str, Any] = {"media_type": "application/json", "bytes": 7, "stored_sha256": digest, **fields}
    return PayloadRef(uri=uri, sha256=digest, **given)


def snapshot(version: int = 10, scope: Scope = CARE, **fields: Any) -> Snapshot:
    """Make a snapshot of an execution."""
    given: dict[str, Any] = {
        "aggregate_type": "execution",
        "aggregate_id": str(EXECUTION),
        "fold_versions": {"execution": 1, "frame": 2},
        "upcaster_digest": "u" * 64,
        "payload_root": "r" * 64,
        "encryption_context": "",
        "checksum": "c" * 64,
        "payload_ref": payload(scope, encoding="zstd"),
    }
    return Snapshot(scope=scope, version=version, **{**given, **fields})


async def rows_of(
    store: ProjectionStore, scope: Scope = CARE, projection: str = "frame", **options: Any
) -> list[StoredRow]:
    """Read all rows a query gives."""
    return [row async for row in store.query(scope, projection, **options)]


async def ids_of(store: ProjectionStore, scope: Scope = CARE, projection: str = "frame", **options: Any) -> list[str]:
    """Read the ids of all rows a query gives."""
    return [row.folded.key.row_id for row in await rows_of(store, scope, projection, **options)]


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
        assert await store.result_refs(CARE, EXECUTION) == []

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


class ProjectionReplacementContract:
    """Building a shard anew."""

    async def _replaced_by(self, store: ProjectionStore, row_id: str, error: type[Exception] | None = None) -> None:
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded(row_id)], [])
            await replacement.finish(9, {})
            if error is not None:
                raise error

    async def test_a_rebuilt_shard_takes_the_place_of_the_old_and_is_counted(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("same"), folded("wrong"), folded("gone")], [event(1)])
        await store.save_projections(SHARD + 1, 0, 2, [folded("aside", shard=SHARD + 1)], [])
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("same")], [])
            await replacement.put([folded("wrong", row={"status": "RIGHT"}), folded("new")], [])
            replaced = await replacement.finish(6, {"frame": 2})
        assert replaced == Replaced(before=3, after=3, changed=1, added=1, removed=1)
        assert await ids_of(store) == ["aside", "new", "same", "wrong"]
        assert await ids_of(store, filters={"status": "RIGHT"}) == ["wrong"]
        assert await store.checkpoints() == Mark.zero().with_position(SHARD, 6).with_position(SHARD + 1, 2)

    async def test_readers_see_the_old_rows_until_the_rebuild_ends(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("old")], [])
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("new")], [])
            assert await ids_of(store) == ["old"]
            await replacement.finish(9, {})
            assert await ids_of(store) == ["old"]
            assert (await store.checkpoints()).positions[SHARD] == 4
        assert await ids_of(store) == ["new"]

    async def test_a_rebuild_that_fails_changes_nothing(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [folded("old")], [event(1, payload_ref=payload())])
        with pytest.raises(ZeroDivisionError):
            await self._replaced_by(store, "new", ZeroDivisionError)
        async with store.replacing(SHARD) as replacement:
            await replacement.put([folded("unfinished")], [])
        assert await ids_of(store) == ["old"]
        assert (await store.checkpoints()).positions[SHARD] == 4
        assert len(await store.result_refs(CARE, EXECUTION)) == 1

    async def test_a_rebuild_takes_other_folds_in(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD, 0, 4, [], [], {"frame": 1})
        async with store.replacing(SHARD) as replacement:
            await replacement.finish(4, {"frame": 2})
        assert await store.save_projections(SHARD, 4, 5, [], [], {"frame": 2})

    async def test_a_rebuild_replaces_result_references(self, store: ProjectionStore) -> None:
        old = [event(1, payload_ref=payload()), event(2, payload_ref=payload())]
        await store.save_projections(SHARD, 0, 4, [], old)
        async with store.replacing(SHARD) as replacement:
            await replacement.put([], [event(2, payload_ref=payload(), fields_ref=payload(digit="b"))])
            await replacement.finish(4, {})
        found = await store.result_refs(CARE, EXECUTION)
        assert [(ref.ref_id, ref.part, ref.sha256[0]) for ref in found] == [
            (old[1].event_id, "payload", "a"),
            (old[1].event_id, "fields", "b"),
        ]

    async def test_a_row_that_two_shards_make_stops_the_rebuild(self, store: ProjectionStore) -> None:
        await store.save_projections(SHARD + 1, 0, 2, [folded("mine", shard=SHARD + 1)], [])
        with pytest.raises(InputError, match="row 'mine' of frame"):
            await self._replaced_by(store, "mine")
        assert [row.folded.shard for row in await rows_of(store)] == [SHARD + 1]


class ProjectionRecordsContract:
    """Failures, result references and snapshots."""

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

    async def test_result_references_are_written_with_the_rows(self, store: ProjectionStore) -> None:
        both = event(
            2, payload_ref=payload(encoding="zstd"), fields_ref=payload(digit="b"), causation_id=5, node_name="a"
        )
        await store.save_projections(SHARD, 0, 4, [], [event(1), both, event(3, OTHER, payload_ref=payload(OTHER))])
        first, second = await store.result_refs(CARE, EXECUTION)
        assert (first.part, first.ref, first.sha256, first.bytes_size) == ("payload", payload().uri, "a" * 64, 7)
        assert (first.ref_id, first.parent_ref_id, first.source_step) == (both.event_id, 5, "a")
        assert (first.compression, first.content_type) == ("zstd", "application/json")
        assert (first.created_at, first.shard, first.execution_id) == (both.ingest_time, SHARD, EXECUTION)
        assert (first.store_tier, first.physical_uri) == ("memory", first.ref)
        assert (second.part, second.sha256, second.compression) == ("fields", "b" * 64, "identity")
        assert [ref.scope for ref in await store.result_refs(OTHER, EXECUTION)] == [OTHER]
        assert await store.result_refs(BILLING, EXECUTION) == []

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


class ProjectionStoreContract(
    ProjectionRowsContract, ProjectionQueriesContract, ProjectionReplacementContract, ProjectionRecordsContract
):
    """Tests for any projection store."""
