"""The contract of transitions, kept in memory and in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.projections.folds.organization.fold import FoldedRows
from noetl.testing.contracts.fences import FenceContract
from noetl.testing.contracts.open_work.contract import OpenWorkContract
from noetl.testing.contracts.task_fences import TaskFenceContract
from noetl.testing.contracts.transitions import TransitionContract
from noetl.testing.contracts.work_harness import MemoryHarness, PostgresHarness
from noetl.testing.engines.memory_parity import assert_memory_parity


class TestInMemory(TransitionContract, FenceContract, TaskFenceContract, OpenWorkContract):
    """The one for tests and simulation; after each test, its whole history folds to the rows that stand."""

    @pytest.fixture
    async def ledger(self) -> AsyncIterator[MemoryLedger]:
        ledger = MemoryLedger(new_rows=FoldedRows)
        yield ledger
        await assert_memory_parity(ledger)

    @pytest.fixture
    def harness(self, ledger: MemoryLedger) -> MemoryHarness:
        return MemoryHarness(ledger)


@pytest.mark.service
class TestInPostgres(TransitionContract, FenceContract, TaskFenceContract, OpenWorkContract):
    """The real one; `ledger`, and replay parity after each test, come with the PostgreSQL test plugin."""

    @pytest.fixture
    def harness(self, ledger: Ledger, database: Database, owner_url: str) -> PostgresHarness:
        return PostgresHarness(database, owner_url)
