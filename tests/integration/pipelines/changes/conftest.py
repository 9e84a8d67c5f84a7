"""A testbed for every test: its own database, an engine of tasks, and what changes data on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.pipelines.changes.changing import Changing

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[Changing]:
    """The test's testbed."""
    testbed = Changing(database, ledger, tmp_path / "dag")
    yield testbed
    await testbed.engine.close()
