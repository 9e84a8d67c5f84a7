"""The ledger's contract as tests: every sentence of `noetl.kernel.ledger.port`. A subclass gives a `ledger` fixture."""

from __future__ import annotations

import time

import pytest

from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.appends import AppendContract
from noetl.testing.contracts.ledger.keys import KeyContract
from noetl.testing.contracts.ledger.links import LinkContract
from noetl.testing.contracts.ledger.reads import ReadContract
from noetl.testing.samples.drafts import Drafts

IDS = SnowflakeGenerator(1, lambda: time.time_ns() // 1_000_000)


class LedgerContract(AppendContract, KeyContract, ReadContract, LinkContract):
    """Tests for any ledger, which must be empty when a test begins."""

    @pytest.fixture
    def drafts(self) -> Drafts:
        """Builders for one organization."""
        return Drafts(Scope("acme", "care"), IDS.mint)
