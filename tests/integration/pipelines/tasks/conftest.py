"""A testbed for every test: its own database with a task engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.pipelines.tasks.task_testbed import TaskTestbed

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger


@pytest.fixture
async def testbed(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[TaskTestbed]:
    """The test's testbed."""
    testbed = TaskTestbed(database, ledger, tmp_path / "dag")
    yield testbed
    await testbed.engine.close()
