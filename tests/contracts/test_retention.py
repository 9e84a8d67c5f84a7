"""What retention promises: nothing is lost on the way to the archive, and reading through it shows no difference."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from noetl.errors import Conflict, Corrupt, EventInvalid, HistoryNotKept
from noetl.kernel.ledger.archive.deletion import event_partitions
from noetl.kernel.ledger.archive.manifest import decode_manifest
from noetl.kernel.ledger.archive.retention import RetentionReport, ensure_partitions, retain
from noetl.kernel.ledger.archive.rows import archive_rows, rebuild_archive_rows
from noetl.kernel.ledger.archive.writer import Archived, archive_partition
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.model.event import Draft, to_json
from noetl.model.ids import EPOCH_MS, SnowflakeGenerator, organization_root_id
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT, Scope, execution_stream, loop_stream
from noetl.testing.contracts.ledger.event_lists import everything, read, read_execution, read_shard
from noetl.testing.samples.drafts import Drafts

# Checkpoints are set by hand here, without any rows.
pytestmark = [pytest.mark.service, pytest.mark.no_parity]

CARE, BOOKS = Scope("acme", "care"), Scope("zeta", "books")
NOW = datetime(2026, 6, 15, tzinfo=UTC)
JANUARY, MARCH = datetime(2026, 1, 10, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC)
PRESENT = SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000)


def minting(moment: datetime) -> Callable[[], int]:
    """Ids as if it were that moment."""
    ticks = iter(range(1_000_000))
    return SnowflakeGenerator(
        4, lambda: EPOCH_MS + (moment - datetime(2024, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + next(ticks)
    ).mint


def run_of(drafts: Drafts, items: int = 5, *, ends: bool = True, **fields: Any) -> list[Draft]:
    """The events of one execution with a loop."""
    run, loop = drafts.mint(), drafts.mint()
    ended = [drafts.execution(run, "playbook.completed")] if ends else []
    return [drafts.execution(run), *(drafts.loop_item(run, loop, n, **fields) for n in range(items)), *ended]


async def append(ledger: PostgresLedger, drafts: list[Draft]) -> int:
    """Append each draft to its stream and return the execution's id."""
    for draft in drafts:
        await ledger.append(draft.stream, [draft])
    return drafts[0].execution_id


class Place:
    """A ledger with a payload store, and all that retention needs."""

    def __init__(self, database: Database, ledger: PostgresLedger, payloads: MemoryPayloadStore) -> None:
        self.database, self.ledger, self.payloads = database, ledger, payloads
        self.history = History(database, ledger, payloads)

    async def projected(self) -> None:
        """Say that projectors have seen everything."""
        async with self.database.transaction(None, "projector") as connection:
            await connection.execute(
                "UPDATE noetl.projection_checkpoint AS c SET position = s.position FROM noetl.shard AS s WHERE s.shard = c.shard"
            )

    async def retain(self, keep_months: int | None = 1, **options: Any) -> RetentionReport:
        """Run retention once everything is projected."""
        await self.projected()
        given = {"mint": PRESENT.mint, "now": NOW, **options}
        return await retain(self.database, self.ledger, self.payloads, keep_months=keep_months, **given)

    async def archive(self, name: str, **options: Any) -> list[Archived]:
        """Archive a partition."""
        given = {"mint": PRESENT.mint, "now": NOW, **options}
        return await archive_partition(self.database, self.ledger, self.payloads, name, **given)

    async def table_rows(self, table: str) -> list[asyncpg.Record]:
        """All rows of a table that CARE sees."""
        async with self.database.transaction(CARE) as connection:
            return list(await connection.fetch(f"SELECT * FROM noetl.{table} ORDER BY partition, 1, 2, 3"))


@pytest.fixture
async def place(database: Database, ledger: PostgresLedger) -> Place:
    return Place(database, ledger, MemoryPayloadStore())


@pytest.fixture
def january() -> Drafts:
    return Drafts(CARE, minting(JANUARY))


@pytest.fixture
def march() -> Drafts:
    return Drafts(CARE, minting(MARCH))


def dropped(report: RetentionReport) -> list[tuple[str, int]]:
    return [(one.partition, one.events) for one in report.partitions if one.action == "dropped"]


async def test_an_archived_execution_reads_as_it_did_before(place: Place, january: Drafts) -> None:
    """INV-12."""
    run = await append(place.ledger, run_of(january, 30, context={"ratio": 0.5, "name": "Ä\n"}))
    before = await read_execution(place.ledger, CARE, run)
    assert dropped(await place.retain()) == [("event_2026_01", 32)]
    assert await read_execution(place.ledger, CARE, run) == []
    after = await read_execution(place.history, CARE, run)
    assert [to_json(event) for event in after] == [to_json(event) for event in before]
    pages = [page async for page in place.history.execution_pages(CARE, run)]
    assert [event for page in pages for event in page] == before
    middle = before[7].position, before[20].position
    assert await read_execution(place.history, CARE, run, *middle) == before[7:21]


async def test_a_stream_of_an_archived_execution_is_read_from_any_version(place: Place, january: Drafts) -> None:
    drafts = run_of(january, 10)
    run = await append(place.ledger, drafts)
    await place.retain()
    stream = loop_stream(CARE, run, int(drafts[1].loop_id or 0))
    assert [event.stream_version for event in await read(place.history, stream, 4)] == [4, 5, 6, 7, 8, 9, 10]
    assert [event.event_type for event in await read(place.history, execution_stream(CARE, run))] == [
        "playbook.initialized",
        "playbook.completed",
    ]


async def test_a_shard_is_read_across_archives_and_live_rows_in_order(
    place: Place, january: Drafts, march: Drafts
) -> None:
    present, other = Drafts(CARE, PRESENT.mint), Drafts(BOOKS, minting(JANUARY + timedelta(days=1)))
    for source in (january, present, march, other, january, present, march) * 4:
        await append(place.ledger, run_of(source, 3))
    before = {shard: await read_shard(place.ledger, shard) for shard in range(SHARD_COUNT)}
    assert [name for name, _ in dropped(await place.retain())] == ["event_2026_01", "event_2026_03"]
    assert len(await everything(place.ledger)) == 8 * 5 + 3  # three archives were recorded
    for shard, events in before.items():
        head = events[-1].position if events else 0
        assert await read_shard(place.history, shard, to_position=head) == events
        pages = [page async for page in place.history.shard_pages(shard, to_position=head)]
        assert [event for page in pages for event in page] == events
        mine = [event for event in events if event.organization_id == "care"][3:]
        if mine:
            assert await read_shard(place.history, shard, mine[0].position, scope=CARE, to_position=head) == mine


async def test_a_stream_that_outlives_executions_is_read_across_partitions(
    place: Place, january: Drafts, march: Drafts
) -> None:
    first, second = await append(place.ledger, run_of(march)), await append(place.ledger, run_of(january))
    third = PRESENT.mint()
    for execution_id in (first, second, third, second, third, first):
        await place.ledger.append(CARE.stream("orders/7"), [january.business("orders/7", execution_id)])
    before = await read(place.ledger, CARE.stream("orders/7"))
    assert len(dropped(await place.retain())) == 2
    assert len(await read(place.ledger, CARE.stream("orders/7"))) == 2
    assert await read(place.history, CARE.stream("orders/7")) == before
    assert await read(place.history, CARE.stream("orders/7"), 5) == before[4:]


@pytest.mark.parametrize("by_page", [False, True])
async def test_a_partition_dropped_while_it_is_read_is_read_on_in_its_archive(
    place: Place, january: Drafts, by_page: bool
) -> None:
    runs = [await append(place.ledger, run_of(january, 1)) for _ in range(40)]
    shard = max(range(SHARD_COUNT), key=lambda one: sum(execution_stream(CARE, run).shard == one for run in runs))
    before = await read_shard(place.ledger, shard)
    assert len(before) > 3
    place.history._ledger = _DropsAfterOnePage(place)  # type: ignore[assignment]
    last = before[-1].position
    if by_page:
        pages = [page async for page in place.history.shard_pages(shard, to_position=last)]
        assert [event for page in pages for event in page] == before
    else:
        assert await read_shard(place.history, shard, to_position=last) == before


class _DropsAfterOnePage:
    """A ledger whose partition is dropped by others after the first page was given."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._armed = True

    async def shard_pages(self, shard: int, from_position: int, **options: Any) -> AsyncIterator[list[Any]]:
        async for page in self._place.ledger.shard_pages(shard, from_position, **options):
            if self._armed:
                yield page[:2]
                self._armed = False
                await self._place.retain()
                return
            yield page


async def test_an_execution_that_has_not_ended_keeps_its_partition(place: Place, january: Drafts) -> None:
    """INV-12."""
    await append(place.ledger, run_of(january))
    open_run = await append(place.ledger, run_of(january, ends=False))
    (outcome,) = (await place.retain()).partitions
    assert (outcome.action, outcome.reason) == ("refused", f"1 execution has not ended ({open_run})")
    assert place.payloads.kept == {}


async def test_valid_idempotency_keys_keep_their_partition(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january, 1, idempotency_key="k"))
    (outcome,) = (await place.retain()).partitions
    assert outcome.action == "refused"
    assert "1 idempotency keys are valid" in (outcome.reason or "")


async def test_events_that_are_not_projected_keep_their_partition(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    report = await retain(place.database, place.ledger, place.payloads, mint=PRESENT.mint, keep_months=1, now=NOW)
    assert "is projected up to 0 and must get to" in (report.partitions[0].reason or "")


async def test_a_projection_store_that_is_behind_keeps_a_partition(place: Place, january: Drafts) -> None:
    """INV-124: what a store has not projected stays in the ledger."""
    await append(place.ledger, run_of(january, 3))
    report = await place.retain(stores={"analytics": Mark.zero()})
    assert [one.action for one in report.partitions] == ["refused"]
    assert " of store analytics is projected up to 0 and must get to" in (report.partitions[0].reason or "")
    assert dropped(await place.retain(stores={"analytics": await place.ledger.head()})) == [("event_2026_01", 5)]


async def test_a_reader_that_does_not_let_go_delays_the_drop_and_stops_no_append(
    place: Place, january: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.kernel.ledger.archive.deletion._WAITS", ())
    await append(place.ledger, run_of(january))
    reader = await place.database.connect()
    async with reader.transaction():
        await reader.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await reader.execute("LOCK TABLE noetl.event IN ACCESS SHARE MODE")
        (outcome,) = (await place.retain()).partitions
        await append(place.ledger, run_of(Drafts(CARE, PRESENT.mint)))
    await reader.close()
    assert (outcome.action, "leave no moment" in (outcome.reason or "")) == ("refused", True)
    assert len(dropped(await place.retain())) == 1


async def test_only_months_wholly_older_than_asked_are_dropped(place: Place, january: Drafts, march: Drafts) -> None:
    for source in (january, march):
        await append(place.ledger, run_of(source))
    assert dropped(await place.retain(None)) == []
    assert dropped(await place.retain(3)) == [("event_2026_01", 7)]
    assert dropped(await place.retain(2)) == [("event_2026_03", 7)]


async def test_a_dry_run_changes_nothing(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    report = await place.retain(keep_archive_months=1, dry_run=True)
    assert [(one.partition, one.action) for one in report.partitions] == [("event_2026_01", "would drop")]
    assert place.payloads.kept == {}
    assert "event_2026_01" in [month.name for month in await event_partitions(place.database)]


async def test_the_organizations_own_facts_are_never_dropped(place: Place, january: Drafts) -> None:
    root = organization_root_id(CARE.tenant_id, CARE.organization_id)
    await append(place.ledger, [january.business("catalog/playbooks", root)])
    await append(place.ledger, run_of(january))
    await place.retain(keep_archive_months=1)
    kept = [event.event_type for event in await everything(place.ledger, CARE)]
    assert sorted(kept) == ["archive.removed", "business.noted", "partition.archived"]


async def test_every_organization_gets_an_archive_of_its_own(place: Place, january: Drafts) -> None:
    other = Drafts(BOOKS, minting(JANUARY + timedelta(hours=1)))
    await append(place.ledger, run_of(january, 3))
    await append(place.ledger, run_of(other, 6))
    found = await place.archive("event_2026_01")
    assert [(one.scope, one.events, one.executions) for one in found] == [(CARE, 5, 1), (BOOKS, 8, 1)]
    for one in found:
        manifest = decode_manifest(await place.payloads.fetch(one.scope, one.manifest_ref))
        (event,) = await read(place.ledger, one.scope.stream("retention/event_2026_01"))
        assert event.payload_ref == one.manifest_ref
        assert event.meta["events"] == manifest.events == one.events
        assert all(f"/{one.scope.organization_id}/" in found.ref.uri for found in manifest.objects)


async def test_objects_hold_no_more_events_than_asked(place: Place, january: Drafts) -> None:
    run = await append(place.ledger, run_of(january, 45))
    (found,) = await place.archive("event_2026_01", object_events=10)
    objects = decode_manifest(await place.payloads.fetch(CARE, found.manifest_ref)).objects
    assert [one.count for one in objects] == [10, 10, 10, 10, 7]
    before = await read_execution(place.ledger, CARE, run)
    await place.retain()
    assert await read_execution(place.history, CARE, run) == before


async def test_archiving_twice_records_once(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    first, second, forced = [await place.archive("event_2026_01", **how) for how in ({}, {}, {"again": True})]
    assert [one.fresh for one in (*first, *second, *forced)] == [True, False, True]
    assert first[0].manifest_ref == second[0].manifest_ref == forced[0].manifest_ref
    assert len(await read(place.ledger, CARE.stream("retention/event_2026_01"))) == 1


async def test_a_late_event_is_archived_before_the_partition_goes(place: Place, january: Drafts) -> None:
    drafts = run_of(january)
    run = await append(place.ledger, drafts)
    await place.archive("event_2026_01")
    late = january.loop_item(run, int(drafts[1].loop_id or 0), 99)
    await place.ledger.append(late.stream, [late])
    before = await read_execution(place.ledger, CARE, run)
    assert dropped(await place.retain()) == [("event_2026_01", 8)]
    assert await read_execution(place.history, CARE, run) == before
    assert len(await read(place.ledger, CARE.stream("retention/event_2026_01"))) == 2


async def test_a_dropped_partition_takes_no_more_events(place: Place, january: Drafts) -> None:
    drafts = run_of(january)
    run = await append(place.ledger, drafts)
    await place.retain()
    late = january.execution(run, "step.entered", node_name="late")
    with pytest.raises(EventInvalid, match="was archived and dropped and takes no more events"):
        await place.ledger.append(late.stream, [late])
    assert len(await read_execution(place.history, CARE, run)) == len(drafts)


async def test_heads_of_dropped_streams_are_forgotten(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    kept = await append(place.ledger, run_of(Drafts(CARE, PRESENT.mint)))
    assert (await place.retain()).forgotten_streams == 2
    async with place.database.transaction(CARE) as connection:
        left = [row[0] for row in await connection.fetch("SELECT execution_id FROM noetl.stream ORDER BY 1")]
    assert left == [kept, kept, None]


async def test_a_damaged_archive_is_written_again_before_the_partition_goes(place: Place, january: Drafts) -> None:
    run = await append(place.ledger, run_of(january))
    (found,) = await place.archive("event_2026_01")
    manifest = decode_manifest(await place.payloads.fetch(CARE, found.manifest_ref))
    await place.payloads.delete(CARE, manifest.objects[0].ref.sha256)
    before = await read_execution(place.ledger, CARE, run)
    assert len(dropped(await place.retain())) == 1
    assert await read_execution(place.history, CARE, run) == before


async def test_a_removed_archive_says_from_where_on_history_is_kept(
    place: Place, january: Drafts, march: Drafts
) -> None:
    old, young = await append(place.ledger, run_of(january)), await append(place.ledger, run_of(march))
    await place.ledger.append(CARE.stream("orders/7"), [january.business("orders/7", old)])
    await place.ledger.append(CARE.stream("orders/7"), [march.business("orders/7", young)])
    report = await place.retain(keep_archive_months=3)
    assert [(one.scope, one.partition) for one in report.removed_archives] == [(CARE, "event_2026_01")]
    tries = [
        read_execution(place.history, CARE, old),
        read(place.history, execution_stream(CARE, old)),
        read(place.history, CARE.stream("orders/7")),
        read_shard(place.history, execution_stream(CARE, old).shard, scope=CARE),
    ]
    for attempt in tries:
        with pytest.raises(HistoryNotKept, match=r"from 2026-02-01T00:00:00\.000000Z on") as problem:
            await attempt
        assert problem.value.details["partitions"] == ["event_2026_01"]
    assert len(await read_execution(place.history, CARE, young)) == 7
    assert len(await read(place.history, CARE.stream("orders/7"), 2)) == 1
    assert (await place.retain(keep_archive_months=3)).removed_archives == ()


async def test_an_execution_nobody_recorded_has_no_history(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    await place.retain()
    assert await read_execution(place.history, CARE, january.mint()) == []
    assert await read_execution(place.history, CARE, minting(datetime(2024, 7, 1, tzinfo=UTC))()) == []


async def test_a_manifest_that_does_not_match_its_checksum_is_an_error(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    (found,) = await place.archive("event_2026_01")
    fields = msgspec.json.decode(await place.payloads.fetch(CARE, found.manifest_ref))
    with pytest.raises(Corrupt, match="checksum"):
        decode_manifest(msgspec.json.encode({**fields, "events": fields["events"] + 1}))


async def test_archive_rows_are_rebuilt_from_the_events(
    place: Place, january: Drafts, march: Drafts, owner_url: str
) -> None:
    ref = await place.payloads.store(CARE, b"result", "text/plain")
    for source in (january, march):
        await append(place.ledger, run_of(source, 3, payload_ref=ref))
    await place.retain(keep_archive_months=3)
    before = [
        await place.table_rows("archive_payload"),
        _without(await place.table_rows("event_archive"), "dropped_at"),
    ]
    assert len(before[0]) == 2
    admin = await asyncpg.connect(owner_url, user="noetl_admin")
    await admin.execute("TRUNCATE noetl.event_archive, noetl.archive_payload")
    await admin.close()
    assert await rebuild_archive_rows(place.database, place.payloads, CARE) == 2
    after = await place.table_rows("event_archive")
    assert [await place.table_rows("archive_payload"), _without(after, "dropped_at")] == before
    assert all(row["dropped_at"] is not None for row in after)


def _without(rows: list[asyncpg.Record], name: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != name} for row in rows]


async def test_two_retentions_do_not_run_at_once(place: Place) -> None:
    other = await place.database.connect("retention")
    await other.execute("SELECT pg_advisory_lock(hashtextextended('noetl.retention', 0))")
    with pytest.raises(Conflict, match="another process"):
        await place.retain()
    await other.close()
    assert (await place.retain()).partitions == ()


async def test_expired_keys_are_deleted_and_valid_ones_stay(database: Database, place: Place, january: Drafts) -> None:
    short = PostgresLedger(database, key_ttl=timedelta(seconds=-1))
    await append(short, run_of(january, 1, idempotency_key="gone"))
    await append(place.ledger, run_of(Drafts(CARE, PRESENT.mint), 1, idempotency_key="stays"))
    assert (await place.retain(None)).expired_keys == 1
    async with database.transaction(CARE) as connection:
        assert await connection.fetchval("SELECT array_agg(key) FROM noetl.idempotency_key") == ["stays"]
    await short.close()


async def test_partitions_are_made_ahead(database: Database) -> None:
    names = await ensure_partitions(database, 5)
    assert len(names) == 6
    assert set(names) <= {month.name for month in await event_partitions(database)}


async def test_a_tenant_cannot_see_or_write_the_archives_of_another(place: Place, january: Drafts) -> None:
    await append(place.ledger, run_of(january))
    await place.archive("event_2026_01")
    async with place.database.transaction(BOOKS) as connection:
        assert await archive_rows(connection) == []
        changed = await connection.execute("UPDATE noetl.event_archive SET events = 0")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("UPDATE noetl.event_archive SET dropped_at = now()")
    assert changed == "UPDATE 0"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_50_000_events_are_archived_and_read_in_bounded_memory(
    database: Database, ledger: PostgresLedger, january: Drafts, tmp_path: Path
) -> None:
    place = Place(database, ledger, ObjectPayloadStore(LocalBucket(tmp_path), compress=True))  # type: ignore[arg-type]
    run, loop = january.mint(), january.mint()
    await append(ledger, [january.execution(run)])
    for _ in range(50):
        await ledger.append(loop_stream(CARE, run, loop), january.loop_items(run, loop, 1000))
    await append(ledger, [january.execution(run, "playbook.completed")])
    await place.projected()
    tracemalloc.start()
    try:
        assert dropped(await place.retain()) == [("event_2026_01", 50_002)]
        count = 0
        async for _ in place.history.read_execution(CARE, run):
            count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 50_002
    assert peak < 20 << 20
