"""A bulk replay gives what a single process gives: rows, checksums, verdicts and refusals, whatever is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.contracts.bulk_replay.replay_testbed import (
    IDS,
    NEIGHBOUR,
    OWN,
    POSTED,
    FilesOfEvents,
    InProcess,
    ReplayTestbed,
    open_testbed,
    write_file,
    write_history,
)

from noetl.errors import FoldFailed, HistoryNotKept, InputError, NoetlError
from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.envelope import externalize
from noetl.kernel.replay.as_of import HEAD, AsOf
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.testing.attacks import files as attacks
from noetl.testing.engines.parity import connect
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger whose idempotency keys expire at once: valid ones would keep their partition."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    yield ledger
    await ledger.close()


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, tmp_path: Path) -> ReplayTestbed:
    testbed = open_testbed(database, ledger, tmp_path)
    await write_history(ledger)
    await testbed.found.project()
    return testbed


async def events_of(testbed: ReplayTestbed, scope: Scope = OWN) -> list[Event]:
    head = await testbed.found.ledger.head()
    return [
        event
        for shard, last in enumerate(head.positions)
        if last
        async for event in testbed.found.history.read_shard(shard, scope=scope, to_position=last)
    ]


async def damage(owner_url: str, statement: str) -> None:
    """Change rows behind the product's back, as only a superuser can."""
    connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
    try:
        assert not (await connection.execute(statement)).endswith(" 0")
    finally:
        await connection.close()


async def refusal(work: Any) -> NoetlError:
    with pytest.raises(NoetlError) as refused:
        await work
    return refused.value


@pytest.mark.no_parity
async def test_every_point_and_projection_is_as_in_a_single_process(testbed: ReplayTestbed) -> None:
    """INV-99."""
    replay, _ = testbed.bulk(InProcess())
    single = testbed.found.replay
    events = sorted(await events_of(testbed), key=lambda event: event.ingest_time)
    middle = events[len(events) // 2]
    points = [HEAD, AsOf(time=middle.ingest_time), AsOf(event_id=middle.event_id), AsOf(mark=Mark.zero())]
    for point in points:
        known = await single.state(OWN, as_of=point, projection="all")
        assert await replay.state(OWN, as_of=point, projection="all") == known
    assert known.events == 0
    for projection in ("execution", "business_object"):
        assert await replay.state(OWN, projection=projection) == await single.state(OWN, projection=projection)
    shortened = await replay.state(OWN, projection="all", limit=2)
    assert shortened == await single.state(OWN, projection="all", limit=2)
    assert shortened.left_off["frame"] == 8
    bare = await replay.state(OWN, projection="all", rows="none")
    assert (bare.rows, bare.checksum) == ({}, (await single.state(OWN, projection="all")).checksum)
    # Where no code of users listens, only some columns are read.
    plain, _ = testbed.bulk(InProcess(), users=False)
    known = await connect(testbed.database, testbed.found.ledger).replay.state(OWN, projection="all")
    assert await plain.state(OWN, projection="all") == known
    with pytest.raises(InputError, match="one shard"):
        await replay.state(OWN, as_of=AsOf(position=3))


@pytest.mark.no_parity
async def test_only_the_organization_that_is_asked_for_is_answered(testbed: ReplayTestbed, tmp_path: Path) -> None:
    """INV-101."""
    everybodys = [*await events_of(testbed), *await events_of(testbed, NEIGHBOUR)]
    everybodys.sort(key=lambda event: (event.shard, event.position))
    head = await testbed.found.ledger.head()
    lake = FilesOfEvents(head, [write_file(testbed.lake_root, "all.parquet", everybodys)])
    for lakes in (None, lake):
        replay, verifier = testbed.bulk(InProcess(testbed.lake_root), lakes)
        for scope in (OWN, NEIGHBOUR):
            state = await replay.state(scope, projection="all")
            assert state == await testbed.found.replay.state(scope, projection="all")
            owners = {(row["tenant_id"], row["organization_id"]) for rows in state.rows.values() for row in rows}
            assert owners == {(scope.tenant_id, scope.organization_id)}
            assert (await verifier.verify(scope)).events == state.events


@pytest.mark.no_parity
async def test_the_lake_and_the_ledger_behind_it_are_one_history(testbed: ReplayTestbed) -> None:
    """INV-99."""
    events = await events_of(testbed)
    known = await testbed.found.replay.state(OWN, projection="all")
    half = [event for event in events if event.position <= 20]
    mark = Mark([min(20, position) for position in known.mark.positions]) if known.mark else Mark.zero()
    by_position = sorted(half, key=lambda event: (event.position, event.shard))
    one, two = half[::2], half[1::2]
    layouts: list[list[tuple[list[Event], int]]] = [
        [(half, 3)],  # in order of shards, row groups with one or two of them
        [(by_position, 1 << 20)],  # shards mixed in one row group
        [(two, 4), (one, 5)],  # files whose positions overlap, the later first
        [([event for event in half if event.shard % 2], 7), ([event for event in half if not event.shard % 2], 7)],
    ]
    for number, layout in enumerate(layouts):
        files = [
            write_file(testbed.lake_root, f"{number}/{place}.parquet", own, rows)
            for place, (own, rows) in enumerate(layout)
        ]
        replay, _ = testbed.bulk(InProcess(testbed.lake_root), FilesOfEvents(mark, files))
        assert await replay.state(OWN, projection="all") == known
    gone = testbed.bulk(InProcess(testbed.lake_root), FilesOfEvents(mark, [*files, *files]))[0]
    with pytest.raises(NoetlError, match="twice"):
        await gone.state(OWN)


@pytest.mark.no_parity
async def test_files_of_the_lake_are_held_against_their_manifests(testbed: ReplayTestbed) -> None:
    """INV-183: whatever a file of another size, time or footer says is not folded; one that is gone was compacted."""
    known = await testbed.found.replay.state(OWN, projection="all")
    mark = Mark(list(known.mark.positions)) if known.mark else Mark.zero()
    events = await events_of(testbed)
    attacked = {
        "bytes instead of": attacks.cut_short,
        "its SHA-256 is": attacks.swap,
        "and the manifest says": lambda file: attacks.flip_a_bit_of_the_footer(file, unseen=True),
        "put together with others meanwhile|is gone": attacks.remove,
    }
    for number, (told, attack) in enumerate(attacked.items()):
        files = [write_file(testbed.lake_root, f"{number}/{name}.parquet", events) for name in ("events", "beside")]
        replay, _ = testbed.bulk(InProcess(testbed.lake_root), FilesOfEvents(mark, files[:1]))
        assert await replay.state(OWN, projection="all") == known
        attack(Path(testbed.lake_root, files[0].entry.path))
        with pytest.raises(NoetlError, match=told):
            await replay.state(OWN)


@pytest.mark.no_parity
async def test_what_differs_is_named_as_a_single_process_names_it(testbed: ReplayTestbed, owner_url: str) -> None:
    """INV-100."""
    _, verifier = testbed.bulk(InProcess())
    single = testbed.found.verifier
    clean = await verifier.verify(OWN)
    assert clean == await single.verify(OWN)
    assert (clean.clean, clean.lag) == (True, 0)
    late = Drafts(OWN, IDS.mint).execution(IDS.mint())
    await testbed.found.ledger.append(late.stream, [late])
    lagging = await verifier.verify(OWN)
    assert lagging == await single.verify(OWN)
    assert (lagging.clean, lagging.lag) == (True, 1)
    damages = (
        "UPDATE noetl.projection SET checksum = repeat('0', 64) WHERE projection = 'stage'",
        "UPDATE noetl.projection SET state = replace(state::text, ':', ': ')::json WHERE projection = 'loop'",
        "UPDATE noetl.projection SET last_position = last_position + 1 WHERE projection = 'frame' AND row_id LIKE '%1'"
        " OR projection = 'execution'",
        "UPDATE noetl.projection SET shard = 77 WHERE projection LIKE 'business_object/%'",
        "UPDATE noetl.projection SET state = '{\"status\": 1}' WHERE projection = 'execution'",
        "DELETE FROM noetl.projection WHERE projection = 'frame'",
    )
    for statement in damages:
        await damage(owner_url, statement)
        report = await verifier.verify(OWN)
        assert not report.clean, statement
        assert report == await single.verify(OWN), statement
    for question in (verifier.verify(OWN, 5), verifier.verify(OWN, check_payloads=True)):
        assert "single process" in (await refusal(question)).message


@pytest.mark.no_parity
async def test_folds_and_upcasters_refuse_what_they_refuse_in_a_single_process(testbed: ReplayTestbed) -> None:
    """INV-99."""
    drafts = Drafts(OWN, IDS.mint)
    replay, _ = testbed.bulk(InProcess())
    single = testbed.found.replay

    async def same(code: type[NoetlError], match: str) -> None:
        known = await refusal(single.state(OWN, projection="all"))
        told = await refusal(replay.state(OWN, projection="all"))
        assert (type(told), told.message, told.details) == (type(known), known.message, known.details)
        assert isinstance(known, code)
        assert match in known.message

    # The event opens no row of its own: where it comes first nobody minds, and where it comes later, only that its name
    # was claimed elsewhere shows that something is wrong.
    claimed = {"schema_version": 2, "meta": {"cents": -5}, "aggregate_id": "1"}
    streams = sorted((OWN.stream(f"invoice/other-{number}") for number in range(40)), key=lambda stream: stream.shard)
    assert streams[0].shard < OWN.stream("invoice/1").shard < streams[-1].shard
    for stream in (streams[0], streams[-1]):
        if stream is streams[-1]:
            assert await replay.state(OWN, projection="all") == await single.state(OWN, projection="all")
        other = drafts.business(stream.stream_id, IDS.mint(), POSTED, **claimed)
        await testbed.found.ledger.append(stream, [other])
    await same(FoldFailed, "there is no order between shards")
    wrong = drafts.business("invoice/4", IDS.mint(), POSTED, schema_version=2, meta={"cents": "many"})
    await testbed.found.ledger.append(wrong.stream, [wrong])
    await same(FoldFailed, "cannot take event")
    unknown = drafts.business("invoice/9", IDS.mint(), POSTED, schema_version=3)
    await testbed.found.ledger.append(unknown.stream, [unknown])
    known = await refusal(single.state(OWN, projection="execution"))
    told = await refusal(replay.state(OWN, projection="execution"))
    assert (told.code, told.message) == (known.code, known.message)


@pytest.mark.no_parity
async def test_archived_months_are_read_and_removed_ones_refused(testbed: ReplayTestbed, database: Database) -> None:
    """INV-99."""
    found = testbed.found
    before = await found.replay.state(OWN, projection="all")
    events = await events_of(testbed)
    mark = before.mark
    assert mark is not None

    async def let_go(keep_archive_months: int | None = None) -> None:
        await retain(
            database,
            found.ledger,
            found.payloads,
            mint=IDS.mint,
            keep_months=1,
            keep_archive_months=keep_archive_months,
            now=datetime.now(UTC),
        )

    await let_go()
    replay, verifier = testbed.bulk(InProcess(testbed.lake_root))
    assert await replay.state(OWN, as_of=AsOf(mark=mark), projection="all") == before
    await found.project()
    assert await verifier.verify(OWN) == await found.verifier.verify(OWN)
    await let_go(2)
    known = await refusal(found.replay.state(OWN))
    assert isinstance(known, HistoryNotKept)
    assert (await refusal(replay.state(OWN))).message == known.message
    # The lake still has what the ledger let go of.
    lake = FilesOfEvents(mark, [write_file(testbed.lake_root, "kept.parquet", events)])
    kept, _ = testbed.bulk(InProcess(testbed.lake_root), lake)
    assert await kept.state(OWN, as_of=AsOf(mark=mark), projection="all") == before


async def large_fields(testbed: ReplayTestbed) -> PayloadRef:
    """Write a frame whose cursor lies in the payload store, and project it; return where it lies."""
    drafts, run, frame = Drafts(OWN, IDS.mint), IDS.mint(), IDS.mint()
    large = drafts.frame(run, IDS.mint(), frame, context={"cursor": "place " * 12_000})
    slim = await externalize(testbed.found.payloads, large)
    later = drafts.frame(run, IDS.mint(), frame, "frame.committed")
    for draft in (drafts.execution(run), slim, later):
        await testbed.found.ledger.append(draft.stream, [draft])
    await testbed.found.project()
    assert slim.fields_ref is not None
    return slim.fields_ref


@pytest.mark.parametrize("users", [True, False], ids=["whole events", "heard fields"])
@pytest.mark.parametrize("lake", [True, False], ids=["lake", "ledger"])
@pytest.mark.no_parity
async def test_fields_in_the_payload_store_are_read_by_tasks_too(
    testbed: ReplayTestbed, users: bool, lake: bool
) -> None:
    """INV-153, INV-154."""
    ref = await large_fields(testbed)
    lakes = None
    if lake:
        file = write_file(testbed.lake_root, "events.parquet", await events_of(testbed))
        lakes = FilesOfEvents(await testbed.found.ledger.head(), [file])
    bulk, verifier = testbed.bulk(InProcess(testbed.lake_root), lakes, users=users)
    single = (
        testbed.found.replay
        if users
        else connect(testbed.database, testbed.found.ledger, payloads=testbed.found.payloads).replay
    )
    spark, alone = await bulk.state(OWN, projection="frame"), await single.state(OWN, projection="frame")
    assert (spark.rows, spark.checksum) == (alone.rows, alone.checksum)
    assert any(row["row"]["cursor"] == "place " * 12_000 for row in spark.rows["frame"])
    if users:
        assert (await verifier.verify(OWN)).clean
    await testbed.found.payloads.delete(OWN, ref.sha256)
    spark, alone = await bulk.state(OWN, projection="frame"), await single.state(OWN, projection="frame")
    assert (spark.rows, spark.checksum, spark.warnings) == (alone.rows, alone.checksum, alone.warnings)
    assert [one.code for one in spark.broken] == ["payload_missing"]
    if users:
        found, wanted = await verifier.verify(OWN), await testbed.found.verifier.verify(OWN)
        assert found.differences == wanted.differences
        assert not found.clean
