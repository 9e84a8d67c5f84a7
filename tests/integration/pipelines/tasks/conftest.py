"""A ground for every test: its own database with a task engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.pipelines.tasks.task_testbed import Ground

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger


@pytest.fixture
async def ground(database: Database, ledger: PostgresLedger, tmp_path: Path) -> AsyncIterator[Ground]:
    """The test's ground."""
    ground = Ground(database, ledger, tmp_path / "dag")
    yield ground
    await ground.engine.close()
