"""What garbage collection may rely on: every reference is counted, and none can appear once a payload is condemned."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from noetl.errors import Conflict, PayloadCollected
from noetl.kernel.ledger.archive.manifest import decode_manifest
from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.archive.rows import archive_rows
from noetl.kernel.ledger.archive.writer import archive_partition
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.payload_references import PostgresReferences
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.garbage_collection import collect, store_again
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.ids import SnowflakeGenerator, snowflake_at
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.event_lists import read_execution
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

SCOPE, OTHER = Scope("acme", "care"), Scope("acme", "books")
IDS = SnowflakeGenerator(6, lambda: time.time_ns() // 1_000_000)
NOW = datetime(2026, 6, 15, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(days=30)
DAY = timedelta(days=1)
DIGEST = "ab" * 32


@pytest.fixture
def drafts() -> Drafts:
    return Drafts(SCOPE, IDS.mint)


@pytest.fixture
def references(database: Database) -> PostgresReferences:
    return PostgresReferences(database)


@pytest.fixture
def store() -> MemoryPayloadStore:
    return MemoryPayloadStore()


async def projected(database: Database) -> None:
    async with database.transaction(None, "projector") as connection:
        await connection.execute("UPDATE noetl.projection_checkpoint SET position = 1000000")


async def archive_january(
    database: Database, ledger: PostgresLedger, store: MemoryPayloadStore, drafts: Drafts, *, drop: bool
) -> tuple[int, str]:
    """Record an old execution with a payload, archive it, and return its id and the payload's digest."""
    run = snowflake_at(datetime(2026, 1, 10, tzinfo=UTC))
    ref = await store.store(SCOPE, b"old result", "text/plain")
    for draft in (drafts.execution(run, payload_ref=ref), drafts.execution(run, "playbook.completed")):
        await ledger.append(draft.stream, [draft])
    await archive_partition(database, ledger, store, "event_2026_01", mint=IDS.mint, now=NOW)
    if drop:
        await projected(database)
        await retain(database, ledger, store, mint=IDS.mint, keep_months=1, now=NOW)
    return run, ref.sha256


async def test_events_are_counted_by_payload_and_by_fields(
    ledger: PostgresLedger, references: PostgresReferences, drafts: Drafts
) -> None:
    ref, other = drafts.payload(), drafts.payload("cd" * 32)
    run = drafts.mint()
    for fields in ({"payload_ref": ref}, {"fields_ref": ref}, {"payload_ref": other, "fields_ref": ref}):
        draft = drafts.execution(run, "step.entered", node_name="s", **fields)
        await ledger.append(draft.stream, [draft])
    wanted = [DIGEST, "cd" * 32, "ef" * 32]
    assert await references.count(SCOPE, wanted) == {DIGEST: 3, "cd" * 32: 1, "ef" * 32: 0}
    assert await references.count(OTHER, wanted) == dict.fromkeys(wanted, 0)
    assert await references.count(SCOPE, []) == {}


async def test_snapshots_are_counted(database: Database, references: PostgresReferences) -> None:
    async with database.transaction(None, "projector") as connection:
        await connection.execute(
            "INSERT INTO noetl.snapshot (tenant_id, organization_id, aggregate_type, aggregate_id, version, fold_versions,"
            " upcaster_digest, payload_root, encryption_context, checksum, payload_ref, payload_sha256)"
            " VALUES ('acme', 'care', 'execution', '7', 12, '{}', '', '', '', '', '{}', $1)",
            DIGEST,
        )
    assert await references.count(SCOPE, [DIGEST]) == {DIGEST: 1}
    assert await references.explain(SCOPE, DIGEST) == ["snapshot of execution 7 at 12"]


async def test_what_archived_events_refer_to_is_counted_after_the_partition_is_gone(
    database: Database,
    ledger: PostgresLedger,
    references: PostgresReferences,
    store: MemoryPayloadStore,
    drafts: Drafts,
) -> None:
    _, sha256 = await archive_january(database, ledger, store, drafts, drop=True)
    assert await references.count(SCOPE, [sha256]) == {sha256: 1}
    assert await references.explain(SCOPE, sha256) == ["archive of event_2026_01 (a payload of its events)"]


async def test_collection_keeps_archives_and_takes_them_once_they_are_removed(
    database: Database,
    ledger: PostgresLedger,
    references: PostgresReferences,
    store: MemoryPayloadStore,
    drafts: Drafts,
) -> None:
    run, sha256 = await archive_january(database, ledger, store, drafts, drop=True)
    report = await collect(store, references, SCOPE, now=LATER, grace=DAY)
    assert report.removed == 0
    assert len(report.decisions) == 3
    assert len(await read_execution(History(database, ledger, store), SCOPE, run)) == 2
    async with database.transaction(SCOPE) as connection:
        (row,) = await archive_rows(connection)
    manifest = decode_manifest(await store.fetch(SCOPE, row.manifest_ref))
    await retain(database, ledger, store, mint=IDS.mint, keep_months=1, keep_archive_months=1, now=NOW)
    report = await collect(store, references, SCOPE, now=LATER, grace=DAY)
    removed = {decision.sha256 for decision in report.decisions if decision.action == "removed"}
    assert removed == {sha256, manifest.objects[0].ref.sha256}
    # The event that says what was archived still refers to its manifest.
    assert await store.exists(SCOPE, row.manifest_ref)


async def test_of_many_events_the_first_are_named(
    ledger: PostgresLedger, references: PostgresReferences, drafts: Drafts
) -> None:
    run, loop = drafts.mint(), drafts.mint()
    items = [drafts.loop_item(run, loop, number, payload_ref=drafts.payload()) for number in range(25)]
    await ledger.append(items[0].stream, items)
    named = await references.explain(SCOPE, DIGEST)
    assert named[0] == f"event {items[0].event_id} (loop.item)"
    assert named[-1] == "5 more events"
    assert len(named) == 21


async def test_an_append_under_way_blocks_the_condemnation_and_wins(
    ledger: PostgresLedger, references: PostgresReferences, drafts: Drafts, database: Database
) -> None:
    draft = drafts.execution(drafts.mint(), payload_ref=drafts.payload())
    async with ledger.decision(SCOPE) as decision:
        await decision.append(draft.stream, [draft])
        condemning = asyncio.create_task(references.condemn(SCOPE, DIGEST))
        await _waits_for_lock(database)
        assert not condemning.done()
    assert await asyncio.wait_for(condemning, 10) is False
    assert await references.condemned(SCOPE) == []


async def test_a_condemnation_that_waits_too_long_lets_appends_pass_and_tries_again(
    ledger: PostgresLedger, references: PostgresReferences, drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.kernel.ledger.payload_references.LOCK_SECONDS", 0.05)
    draft = drafts.execution(drafts.mint(), payload_ref=drafts.payload())
    async with ledger.decision(SCOPE) as decision:
        await decision.append(draft.stream, [draft])
        condemning = asyncio.create_task(references.condemn(SCOPE, "cd" * 32))
        other = drafts.loop_item(_elsewhere(draft.stream.shard, drafts), drafts.mint(), 0, payload_ref=drafts.payload())
        await asyncio.wait_for(ledger.append(other.stream, [other]), 10)
    assert await asyncio.wait_for(condemning, 10) is True


async def test_a_condemned_payload_is_refused_until_it_is_stored_again(
    ledger: PostgresLedger, references: PostgresReferences, store: MemoryPayloadStore, drafts: Drafts
) -> None:
    ref = await store.store(SCOPE, b"data", "text/plain")
    draft = drafts.execution(drafts.mint(), payload_ref=ref)
    assert await references.condemn(SCOPE, ref.sha256) is True
    assert await references.condemned(SCOPE) == [ref.sha256]
    with pytest.raises(PayloadCollected):
        await ledger.append(draft.stream, [draft])
    with pytest.raises(PayloadCollected):
        await store_again(store, references, SCOPE, b"data", ref)
    await store.delete(SCOPE, ref.sha256)
    await references.removed(SCOPE, ref.sha256)
    assert await references.condemned(SCOPE) == []
    await store_again(store, references, SCOPE, b"data", ref)
    assert (await ledger.append(draft.stream, [draft])).first_version == 1
    assert await references.condemn(SCOPE, ref.sha256) is False


async def test_a_payload_that_was_removed_can_be_condemned_again(references: PostgresReferences) -> None:
    assert await references.condemn(SCOPE, DIGEST)
    await references.removed(SCOPE, DIGEST)
    assert await references.condemn(SCOPE, DIGEST)
    assert await references.condemned(SCOPE) == [DIGEST]
    assert await references.condemned(OTHER) == []


async def test_one_collector_works_on_an_organization_at_a_time(references: PostgresReferences) -> None:
    async with references.exclusively(SCOPE):
        with pytest.raises(Conflict, match="acme/care"):
            async with references.exclusively(SCOPE):
                pass
        async with references.exclusively(OTHER):
            pass
    async with references.exclusively(SCOPE):
        pass


async def test_an_archive_whose_objects_were_collected_meanwhile_is_stored_again(
    database: Database,
    ledger: PostgresLedger,
    references: PostgresReferences,
    store: MemoryPayloadStore,
    drafts: Drafts,
) -> None:
    run, _ = await archive_january(database, ledger, store, drafts, drop=False)
    async with database.transaction(SCOPE) as connection:
        (row,) = await archive_rows(connection)
        objects = [found.ref.sha256 for found in decode_manifest(await store.fetch(SCOPE, row.manifest_ref)).objects]
        # As if the process had died before it recorded the archive, long ago.
        await connection.execute("DELETE FROM noetl.archive_payload")
    assert await references.condemn(SCOPE, objects[0])
    with pytest.raises(PayloadCollected, match="being collected"):
        await archive_partition(database, ledger, store, "event_2026_01", mint=IDS.mint, now=NOW, again=True)
    await store.delete(SCOPE, objects[0])
    await references.removed(SCOPE, objects[0])
    await archive_partition(database, ledger, store, "event_2026_01", mint=IDS.mint, now=NOW, again=True)
    await projected(database)
    await retain(database, ledger, store, mint=IDS.mint, keep_months=1, now=NOW)
    assert len(await read_execution(History(database, ledger, store), SCOPE, run)) == 2
    assert await references.condemn(SCOPE, objects[0]) is False


async def _waits_for_lock(database: Database) -> None:
    """Return once somebody waits for an advisory lock."""
    pool = await database.pool()
    async with asyncio.timeout(10):
        while not await pool.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ):
            continue


def _elsewhere(shard: int, drafts: Drafts) -> int:
    """An execution in another shard than that one, whose head a decision holds."""
    while True:
        run = drafts.mint()
        if drafts.execution(run).stream.shard != shard:
            return run
