"""What tests of schedulers stand on."""

from __future__ import annotations

import pytest
from tests.integration.services.schedule.schedule_testbed import ScheduleTestbed

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger


@pytest.fixture
def testbed(database: Database, ledger: PostgresLedger) -> ScheduleTestbed:
    """Schedules on the test's ledger; replay is compared with the rows afterwards."""
    return ScheduleTestbed(database, ledger)
