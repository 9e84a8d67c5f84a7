"""The contract of transitions, kept in memory and in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.ledger.database import Database
from noetl.ledger.memory import MemoryLedger
from noetl.ledger.port import Ledger
from noetl.project.work_rows import FoldedRows
from noetl.testing.fence_contract import FenceContract
from noetl.testing.memory_parity import assert_memory_parity
from noetl.testing.open_work_contract import OpenWorkContract
from noetl.testing.task_fence_contract import TaskFenceContract
from noetl.testing.transition_contract import TransitionContract
from noetl.testing.work_harness import MemoryHarness, PostgresHarness


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
