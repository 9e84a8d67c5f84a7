"""API tokens: a name and a role go in, a token comes out once; later its digest tells whose it is. Tokens are never kept."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

import msgspec
from blake3 import blake3

from noetl.errors import Denied, InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.credentials.secret import Secret

OrganizationRole = Literal["reader", "writer", "admin", "worker"]
"""What a token may do within its organization, and what the organization's admins may hand out."""
Role = Literal[OrganizationRole, "operator"]
"""An operator looks after the installation: reads curated views of all tenants, and nothing of any organization."""
ROLES: tuple[Role, ...] = get_args(Role)
PREFIX = "noetl_"
"""What every token starts with, so that scanners of source code and logs recognise one."""

_TOKEN_BYTES = 32
_CONTEXT = "noetl api token, version 1"
_USE_SECONDS = 60.0
_SHOWN = "token_id, name, role, created_at, expires_at, revoked_at, last_used_at, user_id"


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token."""

    token_id: UUID
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    user_id: UUID | None
    """The person it belongs to; it reads what that person's roles let it read."""

    def state(self, now: datetime) -> Literal["live", "expired", "revoked"]:
        """Say whether the token is good at an instant."""
        if self.revoked_at is not None:
            return "revoked"
        return "live" if self.expires_at is None or now < self.expires_at else "expired"


class TokenHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: the organization and the role of a live token."""

    scope: Scope
    role: Role
    token_id: UUID


class ApiTokens:
    """The tokens in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[UUID, float] = {}

    async def create(
        self, scope: Scope, name: str, role: Role, expires_in: timedelta | None = None, user: str | None = None
    ) -> tuple[Secret, TokenInfo]:
        """Make a token, for the person with an email if one is given; this is the only time it can be seen."""
        if role not in ROLES:
            raise InputError(f"{role!r} is no role of a token", hint=f"the roles are {', '.join(ROLES)}")
        if not name.strip():
            raise InputError("a token needs a name that says who holds it")
        if expires_in is not None and expires_in <= timedelta():
            raise InputError(f"token {name!r} would expire before it is made")
        token = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_TOKEN_BYTES)).rstrip(b"=").decode()
        async with self._database.transaction(scope) as connection:
            holder = None
            if user is not None:
                holder = await connection.fetchval("SELECT user_id FROM noetl.app_user WHERE email = $1", user)
                if holder is None:
                    raise NotFound(f"there is nobody with the email {user} in this organization")
            row = await connection.fetchrow(
                "INSERT INTO noetl.api_token (tenant_id, organization_id, name, role, digest, expires_at, user_id)"  # noqa: S608
                f" VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6, $7) RETURNING {_SHOWN}",
                scope.tenant_id,
                scope.organization_id,
                name,
                role,
                digest(token),
                expires_in,
                holder,
            )
        assert row is not None
        return Secret(token), TokenInfo(**dict(row))

    async def admit(self, token: str) -> TokenHolder:
        """Return who holds a token; `Denied` if it is unknown, expired or revoked."""
        async with self._database.transaction(None) as connection:
            row = await connection.fetchrow("SELECT * FROM noetl.token_scope($1)", digest(token))
        if row is None:
            raise Denied("the token is unknown, expired or revoked", hint="`noetl credentials token create` makes one")
        scope = Scope(row["tenant_id"], row["organization_id"])
        await self._note_use(scope, row["token_id"])
        return TokenHolder(scope=scope, role=row["role"], token_id=row["token_id"])

    async def any_live(self, scope: Scope) -> bool:
        """Tell whether anybody holds a token that is good for the organization now; an operator's opens nothing of it."""
        async with self._database.transaction(scope) as connection:
            found = await connection.fetchval(
                "SELECT EXISTS (SELECT FROM noetl.api_token WHERE tenant_id = $1 AND organization_id = $2"
                " AND role <> 'operator' AND revoked_at IS NULL"
                " AND (expires_at IS NULL OR expires_at > clock_timestamp()))",
                scope.tenant_id,
                scope.organization_id,
            )
        return bool(found)

    async def any_ever(self, scope: Scope) -> bool:
        """Tell whether the organization has had a token, live or ended, since it was last opened; an operator's is none of it."""
        async with self._database.transaction(scope) as connection:
            found = await connection.fetchval(
                "SELECT EXISTS (SELECT FROM noetl.api_token WHERE tenant_id = $1 AND organization_id = $2"
                " AND role <> 'operator' AND opened_at IS NULL)",
                scope.tenant_id,
                scope.organization_id,
            )
        return bool(found)

    async def open_again(self, scope: Scope) -> int:
        """Stop asking for tokens on the loopback until the next one is made; return how many ended ones stood in the way.

        `Denied` while a token is live: whoever holds it counts on the others being kept out.
        """
        async with self._database.transaction(scope) as connection:
            # A token that somebody makes at this moment has its own row, which is not opened.
            rows = await connection.fetch(
                "UPDATE noetl.api_token SET opened_at = clock_timestamp() WHERE tenant_id = $1 AND organization_id = $2"
                " AND role <> 'operator' AND opened_at IS NULL RETURNING name, revoked_at IS NULL"
                " AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS live",
                scope.tenant_id,
                scope.organization_id,
            )
            live = sorted(row["name"] for row in rows if row["live"])
            if live:
                raise Denied(
                    f"tokens are live: {', '.join(live[:5])}",
                    hint="revoke them first with `noetl credentials token revoke`",
                )
        return len(rows)

    async def list(self, scope: Scope) -> Sequence[TokenInfo]:
        """Return all tokens of the organization, revoked ones too, the oldest first."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                f"SELECT {_SHOWN} FROM noetl.api_token WHERE tenant_id = $1 AND organization_id = $2"  # noqa: S608
                " ORDER BY created_at, token_id",
                scope.tenant_id,
                scope.organization_id,
            )
        return [TokenInfo(**dict(row)) for row in rows]

    async def revoke(self, scope: Scope, token_id: UUID) -> TokenInfo:
        """End a token at once; ending it again changes nothing."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(
                "UPDATE noetl.api_token SET revoked_at = coalesce(revoked_at, clock_timestamp())"  # noqa: S608
                f" WHERE tenant_id = $1 AND organization_id = $2 AND token_id = $3 RETURNING {_SHOWN}",
                scope.tenant_id,
                scope.organization_id,
                token_id,
            )
        if row is None:
            raise NotFound(f"there is no token {token_id}", hint="`noetl credentials token list` shows those there are")
        return TokenInfo(**dict(row))

    async def _note_use(self, scope: Scope, token_id: UUID) -> None:
        """Record the last use, at most once a minute: a busy caller must not cost a write per call."""
        now = time.monotonic()
        if now - self._noted.get(token_id, -_USE_SECONDS) < _USE_SECONDS:
            return
        self._noted[token_id] = now
        async with self._database.transaction(scope) as connection:
            await connection.execute(
                "UPDATE noetl.api_token SET last_used_at = $4"
                " WHERE tenant_id = $1 AND organization_id = $2 AND token_id = $3",
                scope.tenant_id,
                scope.organization_id,
                token_id,
                datetime.now(UTC),
            )


def digest(token: str) -> bytes:
    """Return what is kept of a token. It is random and long, so a plain keyless digest cannot be searched back."""
    return blake3(token.encode("utf-8", "surrogatepass"), derive_key_context=_CONTEXT).digest()
