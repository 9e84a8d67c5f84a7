"""Archived months of the ledger: pins keep them, and what rows need of them outlives them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from noetl.errors import HistoryNotKept, NotFound
from noetl.kernel.ledger.archive.retention import Keeping, RetentionReport, retain
from noetl.kernel.ledger.held_payloads import held_by_organization
from noetl.kernel.ledger.payload_references import PostgresReferences
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.payloads.garbage_collection import collect
from noetl.kernel.replay.as_of import AsOf, resolve_organization
from noetl.model.ids import SnowflakeGenerator
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Stream
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.plan import identity
from noetl.services.retention.archives import drop_holds, held_archives, last_look
from noetl.services.retention.pins import Pins
from noetl.testing.engines.parity import Projections, connect
from noetl.testing.samples.drafts import PRODUCER, Drafts
from noetl.testing.samples.executions import IDS, NEIGHBOUR, SCOPE, one
from noetl.testing.samples.pipelines import Piped

from .story_pins import trimmed

# Nothing can be replayed from before the removed archives.
pytestmark = [pytest.mark.service, pytest.mark.no_parity]

NOW = datetime.now(UTC)


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger whose idempotency keys expire at once: valid ones would keep their partition."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    yield ledger
    await ledger.close()


class Past:
    """A pipeline that committed a partition a year ago and again now."""

    def __init__(self, database: Database, ledger: PostgresLedger) -> None:
        self.database, self.ledger = database, ledger
        self.found: Projections = connect(database, ledger)
        self.datasets = Datasets(database, self.found.payloads, self.found.history)
        self.pins = Pins(database, ledger, self.found.history, self.datasets, IDS.mint, PRODUCER)
        self.references = PostgresReferences(database)
        self.refs: list[PayloadRef] = []

    async def happen(self) -> Piped:
        """Let it happen."""
        ticks = iter(range(int((NOW - timedelta(days=365)).timestamp() * 1000), 1 << 60))
        mint = SnowflakeGenerator(28, lambda: next(ticks)).mint
        past = Piped(SCOPE, mint())
        past.drafts = Drafts(SCOPE, mint)
        self.refs = [await self.found.payloads.store(SCOPE, b"%d" % number, "text/plain") for number in range(2)]
        for change in (past.requested(), past.deployed(), committed(past, 1, self.refs[0])):
            await self.ledger.transact(change)
        await self.ledger.transact(one(past.drafts.execution(past.execution_id, "execution.completed")))
        await self.ledger.transact(committed(Piped(), 2, self.refs[1]))
        await self.found.project()
        return past

    async def retain(self, months: int | None = 6) -> RetentionReport:
        """Archive, drop and remove what is old enough."""
        keeping = Keeping(await held_archives(self.database, months), last_look)
        return await retain(
            self.database, self.ledger, self.found.payloads, mint=IDS.mint, keep_months=1, keeping=keeping, now=NOW
        )  # fmt: skip

    async def collected(self) -> set[str]:
        """Collect payloads that nothing needs, and return which those were."""
        later = datetime.now(UTC) + timedelta(hours=1)
        report = await collect(self.found.payloads, self.references, SCOPE, now=later, grace=timedelta(0))
        return {decision.sha256 for decision in report.decisions if decision.action == "removed"}


@pytest.fixture
def past(database: Database, ledger: PostgresLedger) -> Past:
    """The parts, connected."""
    return Past(database, ledger)


async def test_a_pinned_execution_keeps_the_archive_of_its_month(past: Past) -> None:
    """INV-81."""
    old = await past.happen()
    pin = await past.pins.pin_execution(SCOPE, old.execution_id, note="trial", by="ann")
    (kept,) = (await past.retain()).kept_archives
    assert kept.reason == f"pinned by {pin.pin_id[:8]}"
    events = [event async for event in past.found.history.read_execution(SCOPE, old.execution_id)]
    assert len(events) == 2
    await past.pins.release(SCOPE, pin.pin_id, by="ann")
    assert len((await past.retain()).removed_archives) == 1
    with pytest.raises(HistoryNotKept):
        await past.pins.pin_execution(SCOPE, old.execution_id, by="ann")
    with pytest.raises(NotFound):
        await past.pins.pin_execution(SCOPE, IDS.mint(), by="ann")


async def test_a_pin_of_another_organization_keeps_nothing_here(past: Past) -> None:
    """INV-22."""
    old = await past.happen()
    there = Piped(NEIGHBOUR)
    await past.ledger.transact(there.requested())
    await past.pins.pin_execution(NEIGHBOUR, there.execution_id, by="bob")
    assert old.execution_id != there.execution_id
    assert len((await past.retain()).removed_archives) == 1


async def test_a_pin_that_ends_keeps_nothing_after_that(past: Past) -> None:
    old = await past.happen()
    await past.pins.pin_execution(SCOPE, old.execution_id, until=NOW - timedelta(days=1), by="ann")
    assert len((await past.retain()).removed_archives) == 1


async def test_an_organization_decides_how_long_its_archives_stay(past: Past) -> None:
    await past.happen()
    await past.pins.set_policy(SCOPE, {"archive_months": "120"}, by="ann")
    (kept,) = (await past.retain()).kept_archives
    assert kept.reason == "younger than 120 months"
    await past.pins.set_policy(SCOPE, {"archive_months": "default"}, by="ann")
    assert (await past.retain(None)).removed_archives == ()
    assert len((await past.retain(6)).removed_archives) == 1


async def test_what_rows_need_of_a_removed_archive_stays(past: Past) -> None:
    """INV-81: a manifest that a reader may ask for outlives the event that brought it."""
    old = await past.happen()
    await past.retain()
    assert (await past.references.count(SCOPE, [past.refs[0].sha256]))[past.refs[0].sha256] == 1
    assert await past.references.explain(SCOPE, past.refs[0].sha256) == ["a row of a pipeline, whose events are gone"]
    held = {ref.sha256 async for ref, _ in held_by_organization(past.database, past.ledger, past.found.payloads, SCOPE)}
    assert past.refs[0].sha256 in held
    assert not {ref.sha256 for ref in past.refs} & await past.collected()
    gone = {"dataset_uuid": old.dataset, "dataset_version": old.dataset_version}
    await past.ledger.transact(Piped().of_dag(trimmed(gone, [["day=1", 1]])))
    await drop_holds(past.database, SCOPE)
    assert past.refs[0].sha256 not in await past.collected(), "its files are not removed yet"
    async with past.database.transaction(SCOPE) as connection:
        await connection.execute("UPDATE noetl.trimmed_version SET files_removed_at = now()")
    await drop_holds(past.database, SCOPE)
    assert past.refs[0].sha256 in await past.collected()


async def test_the_past_is_answered_up_to_where_archives_were_removed(past: Past) -> None:
    """INV-82."""
    old = await past.happen()
    before = await past.found.history.head()
    await past.retain()
    now = await past.found.history.head()
    assert await versions(past, old, now) == [("day=1", 2)]
    assert await versions(past, old, before) == [("day=1", 2)]
    first = before.with_position(stream_of(old).shard, 0)
    with pytest.raises(HistoryNotKept, match="history is kept for executions from"):
        await versions(past, old, first)
    async with past.database.transaction(SCOPE) as connection:
        moment = await connection.fetchval("SELECT clock_timestamp()")
    at = await resolve_organization(past.found.history, past.database, SCOPE, AsOf(time=moment))
    assert await versions(past, old, at) == [("day=1", 2)]
    with pytest.raises(HistoryNotKept):
        await resolve_organization(past.found.history, past.database, SCOPE, AsOf(time=NOW - timedelta(days=300)))


async def versions(past: Past, old: Piped, mark: Any) -> list[tuple[str, int]]:
    found = await past.datasets.partitions(SCOPE, old.dataset_version, mark)
    return [(part.partition_key, part.version) for part in found]


def committed(dag: Piped, version: int, ref: PayloadRef) -> Transition:
    """Commit a partition under the name its readers look for."""
    (append,) = dag.partition("day=1", version=version, payload_ref=ref).appends
    stream = stream_of(dag)
    return one(msgspec.structs.replace(append.drafts[0], stream_id=stream.stream_id))


def stream_of(dag: Piped) -> Stream:
    return identity.partition_stream(dag.scope, dag.dataset_version, "day=1")
