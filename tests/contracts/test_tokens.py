"""API tokens in PostgreSQL and in memory keep the same promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noetl.errors import Denied
from noetl.kernel.ledger.postgres.database import Database
from noetl.services.credentials.memory_tokens import MemoryTokens
from noetl.services.credentials.tokens import ApiTokens
from noetl.testing.contracts.tokens import SCOPE, TokenContract


class TestInMemory(TokenContract):
    @pytest.fixture
    def tokens(self) -> MemoryTokens:
        return MemoryTokens()

    async def test_a_token_ends_with_its_time(self) -> None:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        tokens = MemoryTokens(lambda: now)
        secret, _ = await tokens.create(SCOPE, "ada", "reader", timedelta(hours=1))
        await tokens.admit(secret.reveal())
        now += timedelta(hours=1)
        with pytest.raises(Denied):
            await tokens.admit(secret.reveal())
        assert (await tokens.any_ever(SCOPE), await tokens.any_live(SCOPE)) == (True, False)


@pytest.mark.service
class TestInPostgres(TokenContract):
    @pytest.fixture
    def tokens(self, database: Database) -> ApiTokens:
        return ApiTokens(database)
