"""Events that are not as they were written: in old schemas, brought to the newest; archived, read as before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import msgspec
import pytest
from tests.integration.spark.source.read_without_spark import BOOKS, CARE, MINT, Query, events_in, read

from noetl.errors import ConfigError, HistoryNotKept, InputError, Unsupported
from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import ObjectPayloadStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.spark.source.batches import Reading, read_batches
from noetl.spark.source.options import SourceOptions, source_options
from noetl.spark.source.payload_store import open_store, store_url
from noetl.spark.source.ranges import Range
from noetl.spark.source.upcasters import as_batch
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.engines.parity import connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run

pytestmark = pytest.mark.service

Options = Callable[..., dict[str, str]]
NOW = datetime.now(UTC)


def noted_twice(upcasters: Upcasters) -> None:
    """Register the step of a schema of this test's own."""
    upcasters.register("noetl.business.noted", 1, _renamed)


def _renamed(event: Event) -> Event:
    return msgspec.structs.replace(
        event, schema_version=2, event_type="business.renamed", meta={"amount": event.meta["sum"], "unit": "cent"}
    )


UPCASTERS = f"{__name__}:noted_twice"


async def note(ledger: PostgresLedger, version: int, count: int) -> None:
    """Write events of a business object in a version of their schema."""
    drafts = Drafts(CARE, MINT)
    meta = {"sum": 5} if version == 1 else {"amount": 5, "unit": "cent"}
    kind = "business.noted" if version == 1 else "business.renamed"
    given = {"schema_name": "noetl.business.noted", "schema_version": version, "meta": meta}
    run = MINT()
    written = [drafts.business("invoice/9", run, kind, **given) for _ in range(count)]
    await ledger.append(written[0].stream, written)


@pytest.mark.no_parity
async def test_old_rows_are_upcast_and_new_ones_left_alone(ledger: PostgresLedger, options: Options) -> None:
    await framed_run(ledger, Drafts(CARE, MINT))
    await note(ledger, 1, 3)
    await note(ledger, 2, 2)
    await note(ledger, 1, 1)
    upcasters = Upcasters()
    noted_twice(upcasters)
    expected = [upcasters.upcast(event) for event in await everything(ledger, CARE)]
    given = options(upcasters=UPCASTERS)
    assert read(given) == expected
    query = Query(given)
    assert query.batch() == expected
    renamed = [event for event in expected if event.event_type == "business.renamed"]
    assert len(renamed) == 6
    # What an event becomes is what options ask about: by their old name they are nowhere.
    assert read({**given, "types": "business.renamed"}) == renamed
    assert read({**given, "types": "business.noted"}) == []


@pytest.mark.no_parity
async def test_an_event_of_a_version_that_nothing_is_known_of_is_an_error(
    ledger: PostgresLedger, options: Options
) -> None:
    run = MINT()
    newer = Drafts(CARE, MINT).execution(run)
    await ledger.append(newer.stream, [newer])
    await changed(options()["url"], "UPDATE noetl.event SET schema_version = 99")
    for columns in (("event_id",), None):
        reading = Reading(SourceOptions.parse(options()), **({"columns": columns} if columns else {}))
        with pytest.raises(Unsupported, match="version 99"):
            list(reading.batches([Range(newer.stream.shard, 1, 10)]))
    with pytest.raises(InputError, match="module:name"):
        read(options(upcasters="nothing"))
    with pytest.raises(InputError, match="cannot be found"):
        read(options(upcasters="nothing:here"))


@pytest.fixture
async def short_lived(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger whose idempotency keys expire at once: valid ones would keep their partition."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    yield ledger
    await ledger.close()


async def test_archived_events_are_read_like_all_others_and_never_silently_missing(
    database: Database, short_lived: PostgresLedger, options: Options, tmp_path: Path
) -> None:
    ledger = short_lived
    milliseconds = iter(range(int((NOW - timedelta(days=365)).timestamp() * 1000), 1 << 60))
    old = SnowflakeGenerator(28, lambda: next(milliseconds)).mint
    runs = [
        (await framed_run(ledger, Drafts(scope, mint))).execution_id for scope in (CARE, BOOKS) for mint in (old, MINT)
    ]
    before = read(options())
    mark = (await ledger.head()).token()
    payloads = ObjectPayloadStore(LocalBucket(tmp_path, tier="disk"))
    projections = connect(database, ledger)
    await projections.project()
    present = SnowflakeGenerator(27, lambda: time.time_ns() // 1_000_000).mint
    report = await retain(database, ledger, payloads, mint=present, keep_months=1, keep_archive_months=None, now=NOW)
    assert [outcome.action for outcome in report.partitions] == ["dropped"]

    there = options(payloads_url=f"file://{tmp_path}", upto=mark)
    again = await asyncio.to_thread(read, there)
    assert by_place(again) == before
    assert await asyncio.to_thread(_texts, there) == await asyncio.to_thread(_texts, there, archived=False)
    first = [event for event in before if event.execution_id == runs[0]]
    by_execution = await asyncio.to_thread(read, {**there, "execution": str(runs[0])})
    assert sorted(by_execution, key=lambda event: event.position) == first
    assert await asyncio.to_thread(read, {**there, "execution": str(runs[2])}) == []
    history = History(database, ledger, payloads)
    every = options(None, payloads_url=f"file://{tmp_path}")
    assert by_place(await asyncio.to_thread(read, every)) == await everything(history)

    for lacking in ({}, {"execution": str(runs[0])}):
        with pytest.raises(ConfigError, match="set the option payloads_url"):
            await asyncio.to_thread(read, {**options(upto=mark), **lacking})
    assert await asyncio.to_thread(read, options(execution=str(runs[1]))) == [
        event for event in before if event.execution_id == runs[1]
    ]

    await changed(options()["url"], "UPDATE noetl.event_archive SET removed_at = clock_timestamp()")
    for lacking in ({}, {"execution": str(runs[0])}):
        with pytest.raises(HistoryNotKept, match="event_"):
            await asyncio.to_thread(read, {**there, **lacking})


async def changed(url: str, statement: str) -> None:
    """Change rows as nobody may who is not the server's own administrator."""
    connection = await asyncpg.connect(url, user="noetl_admin")
    await connection.execute(statement)
    await connection.close()


def by_place(events: list[Event]) -> list[Event]:
    """Return events in the order of shards and positions: tasks read archives after all else."""
    return sorted(events, key=lambda event: (event.shard, event.position))


def _texts(given: dict[str, str], *, archived: bool = True) -> list[tuple[str | None, ...]]:
    """Return the JSON texts of all events, as the source gives them or as they are encoded anew from the events."""
    columns = ("meta", "context", "result", "current_item", "payload_ref", "fields_ref")
    found = [batch for shard in range(16) for batch in read_batches(given, shard, 1, 1 << 40)]
    if not archived:
        found = [as_batch(events_in(batch)) for batch in found]
    return [row for batch in found for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)]


def test_a_store_is_named_by_a_url(tmp_path: Path) -> None:
    settings = {
        "runtime": {"home": str(tmp_path)},
        "payload_store": {"backend": "local", "connection": {"path": None}, "encryption_at_rest": True},
    }
    url = store_url(settings)
    assert url.startswith(f"file://{tmp_path}/payloads?keys=")
    assert source_options(CARE, {"database_url": "x", "settings": settings})["payloads_url"] == url
    assert open_store(url) is not None
    place = {
        "bucket": "b",
        "prefix": "a/b",
        "endpoint": "http://127.0.0.1:1",
        "access_key": "k",
        "secret_key": "s/+",
        "allow_http": True,
    }
    s3 = store_url({"runtime": {"home": "/"}, "payload_store": {"backend": "minio", "connection": place}})
    assert s3 == "s3://b/a/b?endpoint=http%3A%2F%2F127.0.0.1%3A1&access_key=k&secret_key=s%2F%2B&allow_http=true"
    assert open_store(s3) is not None
    for wrong in ("nfs://there", "s3://b?unheard=of"):
        with pytest.raises(ConfigError, match="payloads_url"):
            open_store(wrong)
