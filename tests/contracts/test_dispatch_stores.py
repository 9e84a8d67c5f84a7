"""The contract of the stores that dispatch stands on, kept in memory and in PostgreSQL."""

from __future__ import annotations

import pytest

from noetl.engine.dispatch.stores import EngineStores, memory_stores, postgres_stores
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.testing.contracts.facts import FactAnswers
from noetl.testing.contracts.open_work.answers import OpenWorkAnswers
from noetl.testing.contracts.open_work.executions import OpenExecutionAnswers


class TestInMemory(OpenWorkAnswers, OpenExecutionAnswers, FactAnswers):
    """Those for tests and simulation."""

    @pytest.fixture
    def ledger(self) -> MemoryLedger:
        return MemoryLedger(new_rows=FoldedRows)

    @pytest.fixture
    def stores(self, ledger: MemoryLedger) -> EngineStores:
        return memory_stores(ledger.work, ledger)


@pytest.mark.service
class TestInPostgres(OpenWorkAnswers, OpenExecutionAnswers, FactAnswers):
    """The real ones."""

    @pytest.fixture
    def stores(self, database: Database, ledger: PostgresLedger) -> EngineStores:
        return postgres_stores(database, ledger)
