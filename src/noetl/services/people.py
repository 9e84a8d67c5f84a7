"""The people of an organization and their roles: changes go in, one event each; who there is comes out of the rows."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from noetl.errors import InputError, NotFound, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.catalogue import BY_NAME
from noetl.model.catalogue.people import PEOPLE_STREAM, UserRole
from noetl.model.event import Draft
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope

_NAMESPACE: Final = uuid.UUID("b2f0a9d4-3a57-5d0e-8f4a-6f7f1c9f2e35")


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person, with the slugs of the roles the organization gave them."""

    user_id: str
    email: str
    role: UserRole
    external_id: str | None = None
    roles: tuple[str, ...] = ()


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """A role of an organization's own."""

    role_id: str
    slug: str
    name: str


Said = tuple[str, dict[str, Any]]
"""An event to record: its type and what it says."""


class People:
    """The people of all organizations, each seen only within its own."""

    def __init__(self, database: Database, ledger: Ledger, mint: Callable[[], int], producer: str) -> None:
        self._database = database
        self._ledger = ledger
        self._mint = mint
        self._producer = producer

    async def name_org(self, scope: Scope, name: str, tenant_name: str | None = None) -> None:
        """Give the organization a name, and its tenant one if it is not to go by its id."""
        told = {"name": name, "tenant_name": tenant_name or scope.tenant_id}

        async def decide(connection: Connection) -> Said | None:
            known = await connection.fetchrow("SELECT name, tenant_name FROM noetl.org")
            return None if known is not None and dict(known) == told else ("org.created", told)

        await self._record(scope, decide)

    async def add_user(
        self, scope: Scope, email: str, role: UserRole = "reader", external_id: str | None = None
    ) -> User:
        """Add a person, or change what a person may do who is there already."""
        user_id = str(uuid.uuid5(_NAMESPACE, f"{scope.tenant_id}/{scope.organization_id}/{email}"))

        async def decide(connection: Connection) -> Said | None:
            known = await connection.fetchval("SELECT role FROM noetl.app_user WHERE email = $1", email)
            if known is None:
                told = {"user_id": user_id, "email": email, "role": role, "external_id": external_id}
                return "user.added", told
            return None if known == role else ("user.role_changed", {"user_id": user_id, "role": role})

        await self._record(scope, decide)
        return await self.user(scope, email)

    async def remove_user(self, scope: Scope, email: str) -> None:
        """Remove a person with all roles."""

        async def decide(connection: Connection) -> Said | None:
            return "user.removed", {"user_id": (await _user(connection, email)).user_id}

        await self._record(scope, decide)

    async def create_role(self, scope: Scope, slug: str, name: str) -> Role:
        """Make a role, or give the one with this slug another name."""
        role_id = str(uuid.uuid5(_NAMESPACE, f"{scope.tenant_id}/{scope.organization_id}/role/{slug}"))

        async def decide(connection: Connection) -> Said | None:
            known = await connection.fetchval("SELECT name FROM noetl.org_role WHERE slug = $1", slug)
            return None if known == name else ("role.created", {"role_id": role_id, "slug": slug, "name": name})

        if not slug:
            raise InputError("a role needs a slug, such as `analysts`")
        await self._record(scope, decide)
        return Role(role_id=role_id, slug=slug, name=name)

    async def grant(self, scope: Scope, slug: str, email: str) -> None:
        """Give a person a role; to give it twice changes nothing."""
        await self._record(scope, _membership(slug, email, "role.granted"))

    async def revoke(self, scope: Scope, slug: str, email: str) -> None:
        """Take a role from a person; who has it not loses nothing."""
        await self._record(scope, _membership(slug, email, "role.revoked"))

    async def user(self, scope: Scope, email: str) -> User:
        """Return a person by email."""
        async with self._database.transaction(scope) as connection:
            return await _user(connection, email)

    async def users(self, scope: Scope) -> list[User]:
        """Return everybody, by email."""
        async with self._database.transaction(scope) as connection:
            return [_as_user(row) for row in await connection.fetch(f"{_USERS} ORDER BY email")]

    async def roles(self, scope: Scope) -> list[Role]:
        """Return the organization's own roles, by slug."""
        async with self._database.transaction(scope) as connection:
            found = await connection.fetch("SELECT role_id::text, slug, name FROM noetl.org_role ORDER BY slug")
        return [Role(**row) for row in found]

    async def _record(self, scope: Scope, decide: Callable[[Connection], Awaitable[Said | None]]) -> None:
        """Record what is decided on the rows as they are; whoever was quicker makes it decide again."""
        stream = scope.stream(PEOPLE_STREAM)
        while True:
            async with self._database.transaction(scope) as connection:
                known = await connection.fetchval(
                    "SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id
                )
                said = await decide(connection)
            if said is None:
                return
            try:
                append = Append(stream, [self._draft(scope, *said)], known or 0)
                await self._ledger.transact(Transition((append,)))
            except VersionConflict:
                continue
            return

    def _draft(self, scope: Scope, event_type: str, meta: dict[str, Any]) -> Draft:
        kind = BY_NAME[event_type]
        return Draft(
            self._mint(),
            scope.tenant_id,
            scope.organization_id,
            organization_root_id(scope.tenant_id, scope.organization_id),
            PEOPLE_STREAM,
            kind.aggregate,
            scope.organization_id,
            event_type,
            kind.schema_name,
            kind.version,
            datetime.now(UTC),
            self._producer,
            meta=meta,
        )


_USERS: Final = """
SELECT u.user_id::text, u.email, u.role, u.external_id, ARRAY(
    SELECT r.slug FROM noetl.org_role_membership AS m JOIN noetl.org_role AS r USING (role_id)
    WHERE m.user_id = u.user_id ORDER BY r.slug) AS roles
FROM noetl.app_user AS u
"""


async def _user(connection: Connection, email: str) -> User:
    row = await connection.fetchrow(f"{_USERS} WHERE u.email = $1", email)
    if row is None:
        raise NotFound(f"there is nobody with the email {email} in this organization")
    return _as_user(row)


def _as_user(row: Any) -> User:
    return User(**{**row, "roles": tuple(row["roles"])})


def _membership(slug: str, email: str, kind: str) -> Callable[[Connection], Awaitable[Said | None]]:
    async def decide(connection: Connection) -> Said | None:
        user = await _user(connection, email)
        if (slug in user.roles) == (kind == "role.granted"):
            return None
        role_id = await connection.fetchval("SELECT role_id::text FROM noetl.org_role WHERE slug = $1", slug)
        if role_id is None:
            raise NotFound(f"there is no role {slug} in this organization", hint="create it first")
        return kind, {"role_id": role_id, "user_id": user.user_id}

    return decide
