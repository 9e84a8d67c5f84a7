"""Slots keep no month of the ledger from being archived, and what was archived still proves their rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from noetl.ledger.archive.retention import retain
from noetl.ledger.database import Database
from noetl.ledger.postgres import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.replay.pipelines import pipeline_differences
from noetl.testing.drafts import Drafts
from noetl.testing.execution_changes import IDS, SCOPE
from noetl.testing.parity import connect
from noetl.testing.pipeline_changes import Piped

from .story_schedules import some_schedules

pytestmark = pytest.mark.service

NOW = datetime.now(UTC)


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[PostgresLedger]:
    """A ledger whose idempotency keys expire at once: valid ones would keep their partition."""
    ledger = PostgresLedger(database, key_ttl=timedelta(0))
    yield ledger
    await ledger.close()


async def test_months_with_slots_are_archived_and_still_prove_the_rows(
    ledger: PostgresLedger, database: Database
) -> None:
    """INV-48."""
    found = connect(database, ledger)
    milliseconds = iter(range(int((NOW - timedelta(days=365)).timestamp() * 1000), 1 << 60))
    old = SnowflakeGenerator(28, lambda: next(milliseconds)).mint
    past = Piped(SCOPE, old())
    past.drafts = Drafts(SCOPE, old)
    for change in some_schedules(past):
        await ledger.transact(change)
    await found.project()
    report = await retain(
        database, ledger, found.payloads, mint=IDS.mint, keep_months=1, keep_archive_months=None, now=NOW
    )
    assert [outcome.action for outcome in report.partitions] == ["dropped"]
    assert await pipeline_differences(database, SCOPE, found.history) == []
