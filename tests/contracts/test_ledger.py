"""The ledger's contract, kept in memory and in PostgreSQL."""

from __future__ import annotations

import pytest

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.testing.contracts.ledger.contract import LedgerContract


class TestMemoryLedger(LedgerContract):
    """The one for tests and simulation."""

    @pytest.fixture
    def ledger(self) -> MemoryLedger:
        return MemoryLedger()


@pytest.mark.service
class TestPostgresLedger(LedgerContract):
    """The real one; its `ledger` fixture comes with the PostgreSQL test plugin."""
