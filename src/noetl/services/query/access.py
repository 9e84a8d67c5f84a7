"""Who may read which dataset: a caller and datasets go in, those the caller may read come out. In doubt it is none.

`Readers` grants and revokes roles, one event each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import Denied, InputError, NotFound, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.rows import Dataset

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


_GRANTED_ROLES: Final = "SELECT role FROM noetl.dataset_reader WHERE dataset_uuid = $1 ORDER BY role"


class Readers:
    """The readers of the datasets of all organizations, each seen only within its own."""

    def __init__(
        self, database: Database, ledger: Ledger, mint_many: Callable[[int], list[int]], producer: str
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = Drafting(mint_many, producer)

    async def of(self, scope: Scope, dataset: Dataset) -> tuple[str, ...]:
        """Return the roles that read a dataset; none where the whole organization does."""
        async with self._database.transaction(scope) as connection:
            return (await readers_of(connection, [dataset.dataset_uuid])).get(dataset.dataset_uuid, ())

    async def grant(self, scope: Scope, dataset: Dataset, role: str, by: str) -> tuple[str, ...]:
        """Let the holders of a role read a dataset; with the first role everybody else no longer may."""
        async with self._database.transaction(scope) as connection:
            known = [row[0] for row in await connection.fetch("SELECT slug FROM noetl.org_role ORDER BY slug")]
        if role not in known:
            raise NotFound(
                f"there is no role {role} in this organization",
                hint=f"there are {', '.join(known)}" if known else "make one first: `POST /api/roles`",
            )
        return await self._set(scope, dataset, by, lambda roles: roles | {role})

    async def revoke(self, scope: Scope, dataset: Dataset, role: str, by: str) -> tuple[str, ...]:
        """Take a dataset from the holders of a role; the last role is taken only by `open_to_all`."""

        def without(roles: frozenset[str]) -> frozenset[str]:
            if role not in roles:
                raise NotFound(f"the role {role} does not read dataset {dataset.name}")
            if roles == {role}:
                raise InputError(
                    f"{role} is the last role that reads dataset {dataset.name}: without it everybody in the"
                    " organization could",
                    hint="grant another role first, or say --all to open it to everybody",
                )
            return roles - {role}

        return await self._set(scope, dataset, by, without)

    async def open_to_all(self, scope: Scope, dataset: Dataset, by: str) -> tuple[str, ...]:
        """Let everybody in the organization read a dataset again."""
        return await self._set(scope, dataset, by, lambda roles: frozenset())

    async def _set(
        self, scope: Scope, dataset: Dataset, by: str, change: Callable[[frozenset[str]], frozenset[str]]
    ) -> tuple[str, ...]:
        """Record what a change makes of the roles; whoever was quicker makes it look again."""
        stream = scope.stream(f"readers/{dataset.dataset_uuid}")
        root = organization_root_id(scope.tenant_id, scope.organization_id)
        while True:
            async with self._database.transaction(scope) as connection:
                version = await connection.fetchval(
                    "SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id
                )
                before = frozenset(row[0] for row in await connection.fetch(_GRANTED_ROLES, dataset.dataset_uuid))
            after = change(before)
            if after == before:
                return tuple(sorted(after))
            meta = {"dataset_uuid": dataset.dataset_uuid, "roles": sorted(after), "set_by": by}
            draft = self._drafting.one(
                scope, stream, root, "query.readers_set", f"dataset/{dataset.dataset_uuid}", meta=meta
            )
            try:
                await self._ledger.transact(Transition((Append(stream, [draft], version or 0),)))
            except VersionConflict:
                continue
            return tuple(sorted(after))
