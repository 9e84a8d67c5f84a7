"""API tokens: made, listed and revoked. A token is shown once, when it is made."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from noetl.api.endpoint import ADMINS, Call, Routes
from noetl.api.wire import Body, Name, View, combined
from noetl.services.credentials.tokens import OrganizationRole, TokenInfo

routes = Routes("tokens")


class TokenRequest(Body, frozen=True, kw_only=True):
    """Who will hold the token and what it may do."""

    name: Name
    role: OrganizationRole
    expires_in_seconds: Annotated[int, Meta(ge=1, le=315_360_000)] | None = None
    user: Name | None = None
    """Email of the person it belongs to, whose roles say which datasets it reads."""


class TokenView(TokenInfo, frozen=True, kw_only=True):
    """What is known of a token."""

    token: str | None = None
    """The token itself, shown once."""


class TokenList(View, frozen=True, kw_only=True):
    """All tokens, the oldest first."""

    tokens: list[TokenView]


@routes.post("/api/tokens", ADMINS, status=201)
async def create_token(call: Call, body: TokenRequest) -> TokenView:
    """Make a token of this organization."""
    seconds = body.expires_in_seconds
    token, info = await call.services.tokens.create(
        call.scope, body.name, body.role, None if seconds is None else timedelta(seconds=seconds), body.user
    )
    return combined(TokenView, info, token=token.reveal())


@routes.get("/api/tokens", ADMINS)
async def list_tokens(call: Call) -> TokenList:
    """List the organization's tokens, revoked ones too."""
    return TokenList(tokens=[combined(TokenView, info) for info in await call.services.tokens.list(call.scope)])


@routes.delete("/api/tokens/{token_id}", ADMINS)
async def revoke_token(call: Call, token_id: UUID) -> TokenView:
    """End a token."""
    return combined(TokenView, await call.services.tokens.revoke(call.scope, token_id))
