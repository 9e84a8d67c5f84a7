"""Who may read which dataset: a caller and datasets go in, those the caller may read come out. In doubt it is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from noetl.errors import Denied
from noetl.ledger.database import Connection
from noetl.model.stream import Scope

_READERS: Final = """
SELECT d.dataset_uuid::text AS dataset_uuid, d.read_roles || ARRAY(
    SELECT r.role FROM noetl.dataset_reader AS r WHERE r.dataset_uuid = d.dataset_uuid ORDER BY 1) AS roles
FROM noetl.dataset AS d WHERE d.dataset_uuid = ANY ($1)
"""
_ROLES: Final = """
SELECT t.user_id::text AS user_id, ARRAY(
    SELECT r.slug FROM noetl.app_user AS u JOIN noetl.org_role_membership AS m USING (user_id)
    JOIN noetl.org_role AS r USING (role_id) WHERE u.user_id = t.user_id) AS roles
FROM noetl.api_token AS t WHERE t.token_id = $1 AND t.revoked_at IS NULL
"""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: an administrator may read everything, anybody else what the roles of their token's person allow."""

    scope: Scope
    name: str
    admin: bool = False
    token_id: UUID | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an asker: the person the token belongs to, and that person's roles."""

    admin: bool
    user_id: str | None = None
    roles: frozenset[str] = frozenset()

    def may_read(self, roles: Sequence[str]) -> bool:
        """Tell whether the asker may read a dataset that these roles read; one of no roles is everybody's."""
        return self.admin or not roles or not self.roles.isdisjoint(roles)


async def standing_of(connection: Connection, asker: Asker) -> Standing:
    """Return what an asker may do; a token of nobody, or of somebody who is gone, has no roles."""
    row = None if asker.token_id is None else await connection.fetchrow(_ROLES, asker.token_id)
    if row is None:
        return Standing(admin=asker.admin)
    return Standing(admin=asker.admin, user_id=row["user_id"], roles=frozenset(row["roles"]))


async def readers_of(connection: Connection, datasets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each dataset the roles that read it; none where the whole organization does."""
    rows = await connection.fetch(_READERS, list(datasets))
    return {row["dataset_uuid"]: tuple(dict.fromkeys(row["roles"])) for row in rows}


async def readable(connection: Connection, asker: Asker, datasets: Sequence[str]) -> frozenset[str]:
    """Return those of some datasets that the asker may read; one that is not known is not readable."""
    if not datasets:
        return frozenset()
    standing = await standing_of(connection, asker)
    known = await readers_of(connection, datasets)
    return frozenset(dataset for dataset, roles in known.items() if standing.may_read(roles))


def denied(name: str) -> Denied:
    """Say that a dataset is not for this caller."""
    return Denied(
        f"dataset {name} is for certain roles, and this caller has none of them",
        hint="use a token of a person who has one: an administrator grants roles",
    )
