"""Rows of pipelines outlive the events they came from: what was archived and dropped still proves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from noetl.kernel.ledger.archive.retention import retain
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.model.ids import SnowflakeGenerator
from noetl.testing.engines.parity import assert_parity, connect
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.executions import IDS, SCOPE, one
from noetl.testing.samples.pipelines import Piped

pytestmark = pytest.mark.service

NOW = datetime.now(UTC)


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger whose idempotency keys expire at once: valid ones would keep their partition."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    yield ledger
    await ledger.close()


async def test_rows_are_proven_across_archives(ledger: PostgresLedger, database: Database) -> None:
    """INV-48."""
    found = connect(database, ledger)
    milliseconds = iter(range(int((NOW - timedelta(days=365)).timestamp() * 1000), 1 << 60))
    old = SnowflakeGenerator(28, lambda: next(milliseconds)).mint
    past = Piped(SCOPE, old())
    past.drafts = Drafts(SCOPE, old)
    for change in (past.requested(), past.deployed(), past.moved("dag.activated"), past.created("a")):
        await ledger.transact(change)
    await ledger.transact(
        past.partition("day=1", payload_ref=await found.payloads.store(SCOPE, b"{}", "application/json"))
    )
    await ledger.transact(one(past.drafts.execution(past.execution_id, "execution.completed")))
    present = Piped()
    for change in (present.claimed("a"), present.partition("day=1", "partition.dropped", version=2)):
        await ledger.transact(change)
    await found.project()
    report = await retain(
        database, ledger, found.payloads, mint=IDS.mint, keep_months=1, keep_archive_months=None, now=NOW
    )
    assert [outcome.action for outcome in report.partitions] == ["dropped"]
    assert await pipeline_differences(database, SCOPE, found.history) == []
    assert await pipeline_differences(database, SCOPE) != [], "the live events alone no longer tell all"
    await assert_parity(database, ledger, found)
