"""Replay and verification do not notice that a partition was archived and dropped."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from noetl.errors import HistoryNotKept
from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.replay.as_of import HEAD, AsOf
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.engines.parity import Projections, assert_parity, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import Run, framed_run

pytestmark = pytest.mark.service

SCOPE = Scope("acme", "care")
NOW = datetime.now(UTC)
PRESENT = SnowflakeGenerator(27, lambda: time.time_ns() // 1_000_000)


def minting(moment: datetime) -> Callable[[], int]:
    """Ids as if it were that moment."""
    milliseconds = iter(range(int(moment.timestamp() * 1000), 1 << 60))
    return SnowflakeGenerator(28, lambda: next(milliseconds)).mint


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger whose idempotency keys expire at once: valid ones would keep their partition."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    yield ledger
    await ledger.close()


@pytest.fixture
def found(database: Database, ledger: PostgresLedger) -> Projections:
    return connect(database, ledger)


@pytest.fixture
async def runs(ledger: PostgresLedger, found: Projections) -> list[Run]:
    """One run of a year ago, one of now and another of a year ago."""
    old = minting(NOW - timedelta(days=365))
    told = [await framed_run(ledger, Drafts(SCOPE, mint)) for mint in (old, PRESENT.mint, old)]
    await found.project()
    return told


async def drop_the_old(database: Database, found: Projections, keep_archive_months: int | None = None) -> list[str]:
    """Run retention and return what it did to partitions."""
    report = await retain(
        database,
        found.ledger,
        found.payloads,
        mint=PRESENT.mint,
        keep_months=1,
        keep_archive_months=keep_archive_months,
        now=NOW,
    )
    return [outcome.action for outcome in report.partitions]


async def test_an_archived_execution_is_replayed_as_before_at_every_kind_of_point(
    database: Database, found: Projections, runs: list[Run], ledger: PostgresLedger
) -> None:
    run = runs[0]
    events = [event async for event in ledger.read_execution(SCOPE, run.execution_id)]
    points = [
        HEAD,
        AsOf(position=run.positions[6]),
        AsOf(event_id=run.drafts[6].event_id),
        AsOf(time=events[6].ingest_time),
    ]
    before = [await found.replay.state(SCOPE, run.execution_id, as_of=point, projection="all") for point in points]
    assert [state.position for state in before] == [run.positions[-1], *[run.positions[6]] * 3]
    assert await drop_the_old(database, found) == ["dropped"]
    after = [await found.replay.state(SCOPE, run.execution_id, as_of=point, projection="all") for point in points]
    assert after == before


async def test_an_organization_is_replayed_across_archives_as_of_a_time(
    database: Database, found: Projections, runs: list[Run], ledger: PostgresLedger
) -> None:
    told = [event for run in runs async for event in ledger.read_execution(SCOPE, run.execution_id)]
    points = [HEAD, *(AsOf(time=told[number].ingest_time) for number in (4, 20, 40))]
    before = [await found.replay.state(SCOPE, as_of=point, projection="all") for point in points]
    assert await drop_the_old(database, found) == ["dropped"]
    for point, known in zip(points, before, strict=True):
        state = await found.replay.state(SCOPE, as_of=point, projection="all")
        if point == HEAD:  # the archive left a fact of its own in the ledger
            assert state.events == known.events + 1
        else:
            assert state.events == known.events
        assert (state.rows, state.checksums) == (known.rows, known.checksums)


async def test_archived_history_verifies_clean(database: Database, found: Projections, runs: list[Run]) -> None:
    assert await drop_the_old(database, found) == ["dropped"]
    await assert_parity(database, found.ledger, found)
    for run in runs:
        assert (await found.verifier.verify(SCOPE, run.execution_id)).clean


async def test_a_removed_archive_says_so(database: Database, found: Projections, runs: list[Run]) -> None:
    assert await drop_the_old(database, found) == ["dropped"]
    await found.project()
    await drop_the_old(database, found, keep_archive_months=2)
    with pytest.raises(HistoryNotKept):
        await found.replay.state(SCOPE, runs[0].execution_id)
    report = await found.verifier.verify(SCOPE)
    assert (report.differences, report.projections, report.events) == ([], [], 0)
    assert "the archive of event_" in (report.not_folded or "")
    with pytest.raises(HistoryNotKept):
        await found.verifier.verify(SCOPE, runs[0].execution_id)
    assert (await found.replay.state(SCOPE, runs[1].execution_id)).rows["execution"]
