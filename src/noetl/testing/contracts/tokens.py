"""What every keeper of API tokens promises, checked from outside: PostgreSQL and memory pass it alike."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from noetl.errors import Denied, InputError, NotFound
from noetl.model.stream import Scope
from noetl.services.credentials.memory_tokens import MemoryTokens
from noetl.services.credentials.tokens import ApiTokens

SCOPE, NEIGHBOUR = Scope("default", "default"), Scope("default", "neighbour")


class TokenContract:
    """Inherit it and give `tokens`, empty and new for each test."""

    async def test_a_token_admits_its_holder_until_it_is_revoked(self, tokens: ApiTokens | MemoryTokens) -> None:
        secret, made = await tokens.create(SCOPE, "ada", "writer")
        holder = await tokens.admit(secret.reveal())
        assert (holder.scope, holder.role, holder.token_id) == (SCOPE, "writer", made.token_id)
        first = await tokens.revoke(SCOPE, made.token_id)
        assert isinstance(first.revoked_at, datetime)
        assert (await tokens.revoke(SCOPE, made.token_id)).revoked_at == first.revoked_at
        with pytest.raises(Denied):
            await tokens.admit(secret.reveal())
        assert [one.name for one in await tokens.list(SCOPE)] == ["ada"]
        assert await tokens.list(NEIGHBOUR) == []
        with pytest.raises(NotFound):
            await tokens.revoke(SCOPE, uuid4())

    async def test_an_organization_that_has_had_a_token_asks_for_one_until_it_is_opened(
        self, tokens: ApiTokens | MemoryTokens
    ) -> None:
        """What ends by itself opens nothing."""
        assert (await tokens.any_ever(SCOPE), await tokens.any_live(SCOPE)) == (False, False)
        await tokens.create(SCOPE, "watch", "operator")
        assert (await tokens.any_ever(SCOPE), await tokens.any_live(SCOPE)) == (False, False)
        _, made = await tokens.create(SCOPE, "ada", "admin", timedelta(days=1))
        assert (await tokens.any_ever(SCOPE), await tokens.any_live(SCOPE)) == (True, True)
        assert not await tokens.any_ever(NEIGHBOUR)
        with pytest.raises(Denied, match="ada"):
            await tokens.open_again(SCOPE)
        await tokens.revoke(SCOPE, made.token_id)
        assert (await tokens.any_ever(SCOPE), await tokens.any_live(SCOPE)) == (True, False)
        assert await tokens.open_again(SCOPE) == 1
        assert not await tokens.any_ever(SCOPE)
        await tokens.create(SCOPE, "bob", "reader")
        assert await tokens.any_ever(SCOPE)

    async def test_a_token_is_not_made_expired(self, tokens: ApiTokens | MemoryTokens) -> None:
        with pytest.raises(InputError):
            await tokens.create(SCOPE, "late", "reader", timedelta())
