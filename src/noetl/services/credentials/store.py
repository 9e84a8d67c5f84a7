"""Credentials of organizations: data go in and are kept encrypted; `Credential`s come out for tools, descriptions for people."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from noetl.engine.tools.port import Credential
from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.credentials.credential_types import check
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.rotation import Rotation, rotate
from noetl.services.credentials.sealed_rows import Place, hold_keys, opened_json, sealed_json

OnChange = Callable[[Scope, str, str], Awaitable[None]]
"""Told after a change: whose it is, the name, and `changed` or `removed`. Never the data."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DESCRIBED = "name, type, fields, description, tags, meta, key_id, created_at, updated_at"


class CredentialView(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a credential."""

    name: str
    type: str
    fields: tuple[str, ...]
    description: str | None
    tags: tuple[str, ...]
    meta: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class CredentialInfo(CredentialView, frozen=True, kw_only=True):
    """What is known of a credential besides its values."""

    key_id: str


class CredentialStore:
    """The credentials in one database. Every call sees one organization; `rotate` goes through all."""

    def __init__(self, database: Database, keys: KeyRing, on_change: OnChange | None = None) -> None:
        self._database = database
        self._keys = keys
        self._on_change = on_change

    async def put(
        self,
        scope: Scope,
        name: str,
        type_name: str,
        data: Mapping[str, Any],
        *,
        description: str | None = None,
        tags: Sequence[str] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> CredentialInfo:
        """Keep a credential, in place of one of the same name; description, tags and meta are not encrypted."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is not a name of letters, digits, '.', '_' and '-' (128 at most)")
        check(name, type_name, data)
        async with self._database.transaction(scope) as connection:
            await hold_keys(connection)
            sealed, key_id = sealed_json(self._keys, dict(data), _place(scope, name, type_name))
            row = await connection.fetchrow(
                "INSERT INTO noetl.credential AS c (tenant_id, organization_id, name, type, data_encrypted, key_id,"  # noqa: S608
                " fields, description, tags, meta) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
                " ON CONFLICT (tenant_id, organization_id, name) DO UPDATE SET type = excluded.type,"
                " data_encrypted = excluded.data_encrypted, key_id = excluded.key_id, fields = excluded.fields,"
                " description = excluded.description, tags = excluded.tags, meta = excluded.meta,"
                f" updated_at = clock_timestamp() RETURNING {_DESCRIBED}",
                scope.tenant_id,
                scope.organization_id,
                name,
                type_name,
                sealed,
                key_id,
                sorted(data),
                description,
                list(tags),
                None if meta is None else json.dumps(dict(meta)),
            )
        await self._changed(scope, name, "changed")
        return _info(row)

    async def get(self, scope: Scope, name: str) -> Credential:
        """Return a credential with its data in the clear, for a tool; `NotFound` when there is none."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(
                "SELECT type, data_encrypted, key_id FROM noetl.credential"
                " WHERE tenant_id = $1 AND organization_id = $2 AND name = $3",
                scope.tenant_id,
                scope.organization_id,
                name,
            )
        if row is None:
            raise _unknown(name)
        place = _place(scope, name, row["type"])
        return Credential(name, row["type"], opened_json(self._keys, row["data_encrypted"], row["key_id"], place))

    async def describe(self, scope: Scope, name: str) -> CredentialInfo:
        """Return what may be shown of a credential."""
        found = await self._select(scope, "AND name = $3", name)
        if not found:
            raise _unknown(name)
        return found[0]

    async def list(self, scope: Scope, type_name: str | None = None) -> Sequence[CredentialInfo]:
        """Return what may be shown of all credentials, by name, or of those of one type."""
        if type_name is None:
            return await self._select(scope, "ORDER BY name")
        return await self._select(scope, "AND type = $3 ORDER BY name", type_name)

    async def delete(self, scope: Scope, name: str) -> None:
        """Remove a credential; `NotFound` when there is none."""
        async with self._database.transaction(scope) as connection:
            gone = await connection.fetchval(
                "DELETE FROM noetl.credential WHERE tenant_id = $1 AND organization_id = $2 AND name = $3 RETURNING name",
                scope.tenant_id,
                scope.organization_id,
                name,
            )
        if gone is None:
            raise _unknown(name)
        await self._changed(scope, name, "removed")

    async def rotate(self, *, new_key: bool = False, keep_old_keys: bool = False) -> Rotation:
        """Seal every row of every organization under the newest key, a new one if asked for.

        Key files that no row names any more are removed unless they are to be kept, for instance for old backups.
        """
        if new_key:
            self._keys.add()
        return await rotate(self._database, self._keys, keep_old_keys=keep_old_keys)

    async def _select(self, scope: Scope, ending: str, *values: str) -> Sequence[CredentialInfo]:
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                f"SELECT {_DESCRIBED} FROM noetl.credential WHERE tenant_id = $1 AND organization_id = $2 {ending}",  # noqa: S608
                scope.tenant_id,
                scope.organization_id,
                *values,
            )
        return [_info(row) for row in rows]

    async def _changed(self, scope: Scope, name: str, change: str) -> None:
        if self._on_change is not None:
            await self._on_change(scope, name, change)


def _place(scope: Scope, name: str, type_name: str) -> Place:
    return Place.of("credential", scope, name, type_name)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no credential {name!r}", hint="`noetl credentials list` shows those there are")


def _info(row: Any) -> CredentialInfo:
    values = dict(row)
    values["meta"] = json.loads(values["meta"] or "{}")
    return CredentialInfo(**values | {"fields": tuple(values["fields"]), "tags": tuple(values["tags"])})
