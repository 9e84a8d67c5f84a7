"""The contract of the stores that dispatch stands on, kept in memory and in PostgreSQL."""

from __future__ import annotations

import pytest

from noetl.dispatch.stores import EngineStores, memory_stores, postgres_stores
from noetl.ledger.database import Database
from noetl.ledger.memory import MemoryLedger
from noetl.ledger.postgres import PostgresLedger
from noetl.project.work_rows import FoldedRows
from noetl.testing.fact_answers import FactAnswers
from noetl.testing.open_execution_answers import OpenExecutionAnswers
from noetl.testing.open_work_answers import OpenWorkAnswers


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
