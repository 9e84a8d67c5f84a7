"""What tests of schedulers stand on."""

from __future__ import annotations

import pytest
from tests.integration.services.schedule.schedule_testbed import Ground

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger


@pytest.fixture
def ground(database: Database, ledger: PostgresLedger) -> Ground:
    """Schedules on the test's ledger; replay is compared with the rows afterwards."""
    return Ground(database, ledger)
