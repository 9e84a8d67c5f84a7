"""The roles that may read a dataset, granted and revoked: one event each, and the rows that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.catalog.dataset_rows import Dataset
from noetl.dispatch.drafts import Drafting
from noetl.errors import InputError, NotFound, VersionConflict
from noetl.ledger.database import Database
from noetl.ledger.port import Ledger
from noetl.ledger.transition import Append, Transition
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope
from noetl.query.access import readers_of

_ROLES: Final = "SELECT role FROM noetl.dataset_reader WHERE dataset_uuid = $1 ORDER BY role"


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
                before = frozenset(row[0] for row in await connection.fetch(_ROLES, dataset.dataset_uuid))
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
