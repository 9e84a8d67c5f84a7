"""API tokens in memory: for tests and simulation only, held to the same contract as those in PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec

from noetl.errors import Denied, InputError, NotFound
from noetl.model.stream import Scope
from noetl.services.credentials.secret import Secret
from noetl.services.credentials.tokens import PREFIX, Role, TokenHolder, TokenInfo


class _Token(msgspec.Struct, kw_only=True):
    """One token as its row would have it; the text of one that simulates is no secret."""

    scope: Scope
    text: str
    info: TokenInfo
    is_opened: bool = False


class MemoryTokens:
    """See `ApiTokens` for the promises; this one forgets everything with its process."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._kept: list[_Token] = []

    async def create(
        self, scope: Scope, name: str, role: Role, expires_in: timedelta | None = None, user: str | None = None
    ) -> tuple[Secret, TokenInfo]:
        """Make a token."""
        if expires_in is not None and expires_in <= timedelta():
            raise InputError(f"token {name!r} would expire before it is made")
        if user is not None:
            raise NotFound(f"there is nobody with the email {user} in this organization")
        now = self._now()
        info = TokenInfo(
            token_id=uuid4(),
            name=name,
            role=role,
            created_at=now,
            expires_at=None if expires_in is None else now + expires_in,
            revoked_at=None,
            last_used_at=None,
            user_id=None,
        )
        one = _Token(scope=scope, text=PREFIX + secrets.token_hex(16), info=info)
        self._kept.append(one)
        return Secret(one.text), info

    async def admit(self, token: str) -> TokenHolder:
        """Return who holds a token."""
        for one in self._kept:
            if one.text == token and self._is_live(one):
                return TokenHolder(scope=one.scope, role=one.info.role, token_id=one.info.token_id)
        raise Denied("the token is unknown, expired or revoked", hint="`noetl credentials token create` makes one")

    async def any_live(self, scope: Scope) -> bool:
        """Tell whether anybody holds a token that is good now."""
        return any(self._is_live(one) for one in self._of(scope))

    async def any_ever(self, scope: Scope) -> bool:
        """Tell whether the organization has had a token since it was last opened."""
        return any(not one.is_opened for one in self._of(scope))

    async def open_again(self, scope: Scope) -> int:
        """Stop asking for tokens until the next one is made."""
        ended = [one for one in self._of(scope) if not one.is_opened]
        live = sorted(one.info.name for one in ended if self._is_live(one))
        if live:
            raise Denied(
                f"tokens are live: {', '.join(live[:5])}",
                hint="revoke them first with `noetl credentials token revoke`",
            )
        for one in ended:
            one.is_opened = True
        return len(ended)

    async def revoke(self, scope: Scope, token_id: UUID) -> TokenInfo:
        """End a token at once."""
        for one in self._kept:
            if (one.scope, one.info.token_id) == (scope, token_id):
                one.info = msgspec.structs.replace(one.info, revoked_at=one.info.revoked_at or self._now())
                return one.info
        raise NotFound(f"there is no token {token_id}", hint="`noetl credentials token list` shows those there are")

    def _of(self, scope: Scope) -> Sequence[_Token]:
        """Return the tokens of an organization; an operator's is none of it."""
        return [one for one in self._kept if one.scope == scope and one.info.role != "operator"]

    def _is_live(self, one: _Token) -> bool:
        return one.info.state(self._now()) == "live"

    async def list(self, scope: Scope) -> Sequence[TokenInfo]:
        """Return all tokens of the organization, the oldest first."""
        return [one.info for one in self._kept if one.scope == scope]
