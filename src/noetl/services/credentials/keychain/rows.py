"""The rows of the keychain: fetched fields go in encrypted, and come out until they expire. One fetcher at a time per row."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
from blake3 import blake3

from noetl.errors import ConfigError, Corrupt
from noetl.kernel.ledger.postgres.database import Database, translated
from noetl.language.playbook.model import KeychainEntry
from noetl.model.stream import Scope
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.sealed_rows import Place, hold_keys, opened_json, sealed_json

_log = logging.getLogger(__name__)
_INFO = (
    "cache_key, keychain_name AS name, kind, scope, execution_id, catalog_path, auto_renew, renew_at, expires_at,"
    " renewals, created_at, updated_at"
)


class KeychainUse(msgspec.Struct, frozen=True):
    """Who uses a keychain: an organization, and within it a playbook and its execution."""

    scope: Scope
    catalog_path: str
    execution_id: int | None = None


class KeychainInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a kept entry."""

    cache_key: str
    name: str
    kind: str
    scope: str
    execution_id: int | None
    catalog_path: str | None
    auto_renew: bool
    renew_at: datetime
    expires_at: datetime
    renewals: int
    created_at: datetime
    updated_at: datetime


class Held(msgspec.Struct, frozen=True):
    """An entry as it is kept. `definition` is the digest of what it was fetched by."""

    definition: str
    fields: dict[str, Any]
    shown: list[str]
    renew_at: datetime
    expires_at: datetime

    def __repr__(self) -> str:
        return f"Held(until {self.expires_at:%Y-%m-%dT%H:%M:%SZ})"


class KeychainRows:
    """The keychain's rows in one database."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    async def read(self, scope: Scope, cache_key: str) -> Held | None:
        """Return a kept entry, expired or not; one that does not open counts as none, since it can be fetched again."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(
                "SELECT data_encrypted, key_id, renew_at, expires_at FROM noetl.keychain"
                " WHERE tenant_id = $1 AND organization_id = $2 AND cache_key = $3",
                scope.tenant_id,
                scope.organization_id,
                cache_key,
            )
        if row is None:
            return None
        place = Place.of("keychain entry", scope, cache_key)
        try:
            document = opened_json(self._keys, row["data_encrypted"], row["key_id"], place)
        except (Corrupt, ConfigError):
            return None
        return Held(**document, renew_at=row["renew_at"], expires_at=row["expires_at"])

    async def write(self, use: KeychainUse, entry: KeychainEntry, held: Held) -> None:
        """Keep an entry; if it renews itself, with what is needed to fetch it again."""
        scope, cache_key = use.scope, cache_key_of(use, entry)
        document = {"definition": held.definition, "fields": held.fields, "shown": held.shown}
        config = msgspec.to_builtins(entry) if entry.auto_renew else None
        async with self._database.transaction(scope) as connection:
            await hold_keys(connection)
            data, key_id = sealed_json(self._keys, document, Place.of("keychain entry", scope, cache_key))
            renewal = None
            if config is not None:
                renewal, _ = sealed_json(self._keys, config, Place.of("keychain renewal", scope, cache_key))
            await connection.execute(
                "INSERT INTO noetl.keychain AS k (tenant_id, organization_id, cache_key, keychain_name, kind, scope,"
                " execution_id, catalog_path, data_encrypted, renew_config_encrypted, key_id, auto_renew, renew_at,"
                " expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
                " ON CONFLICT (tenant_id, organization_id, cache_key) DO UPDATE SET kind = excluded.kind,"
                " data_encrypted = excluded.data_encrypted, renew_config_encrypted = excluded.renew_config_encrypted,"
                " key_id = excluded.key_id, auto_renew = excluded.auto_renew, renew_at = excluded.renew_at,"
                " expires_at = excluded.expires_at, renewals = k.renewals + 1, updated_at = clock_timestamp()",
                scope.tenant_id,
                scope.organization_id,
                cache_key,
                entry.name,
                entry.kind,
                entry.scope,
                use.execution_id if entry.scope == "local" else None,
                None if entry.scope == "shared" else use.catalog_path,
                data,
                renewal,
                key_id,
                entry.auto_renew,
                held.renew_at,
                held.expires_at,
            )

    async def due(self, scope: Scope, now: datetime) -> list[tuple[KeychainUse, KeychainEntry]]:
        """Return the entries that are to be renewed by now, the most urgent first."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                "SELECT cache_key, execution_id, catalog_path, renew_config_encrypted, key_id FROM noetl.keychain"
                " WHERE tenant_id = $1 AND organization_id = $2 AND auto_renew AND renew_at <= $3 ORDER BY renew_at",
                scope.tenant_id,
                scope.organization_id,
                now,
            )
        found = []
        for row in rows:
            place = Place.of("keychain renewal", scope, row["cache_key"])
            try:
                config = opened_json(self._keys, row["renew_config_encrypted"], row["key_id"], place)
            except (Corrupt, ConfigError) as problem:
                _log.warning("keychain entry %s cannot be renewed by itself: %s", row["cache_key"], problem.message)
                continue
            use = KeychainUse(scope, row["catalog_path"] or "", row["execution_id"])
            found.append((use, msgspec.convert(config, KeychainEntry)))
        return found

    async def list(self, scope: Scope) -> Sequence[KeychainInfo]:
        """Return what may be shown of all kept entries."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                f"SELECT {_INFO} FROM noetl.keychain WHERE tenant_id = $1 AND organization_id = $2 ORDER BY cache_key",  # noqa: S608
                scope.tenant_id,
                scope.organization_id,
            )
        return [KeychainInfo(**dict(row)) for row in rows]

    async def delete(self, scope: Scope, cache_key: str) -> bool:
        """Remove a kept entry and say whether there was one."""
        return await self._delete(scope, "cache_key = $3", cache_key) > 0

    async def delete_old(self, scope: Scope, before: datetime) -> int:
        """Remove what expired before an instant or was kept for an execution that has ended, and return how many."""
        ended = (
            "execution_id IS NOT NULL AND NOT EXISTS (SELECT FROM noetl.execution_head AS h WHERE h.tenant_id = $1"
            " AND h.organization_id = $2 AND h.execution_id = keychain.execution_id)"
        )
        return await self._delete(scope, f"(expires_at < $3 OR ({ended}))", before)

    async def _delete(self, scope: Scope, condition: str, value: object) -> int:
        async with self._database.transaction(scope) as connection:
            answer = await connection.execute(
                f"DELETE FROM noetl.keychain WHERE tenant_id = $1 AND organization_id = $2 AND {condition}",  # noqa: S608
                scope.tenant_id,
                scope.organization_id,
                value,
            )
        return int(answer.split()[-1])

    @asynccontextmanager
    async def alone(self, scope: Scope, cache_key: str, *, wait: bool) -> AsyncIterator[bool]:
        """Be the only one to fetch a row, on all machines; without `wait`, say False where somebody else is.

        The lock belongs to a connection of its own, since a transaction held open while a server is asked would be
        cut off, and ends with it, however this ends.
        """
        number = _lock_number(scope, cache_key)
        connection = await self._database.connect()
        try:
            question = "SELECT pg_advisory_lock($1)" if wait else "SELECT pg_try_advisory_lock($1)"
            with translated():
                got = await connection.fetchval(question, number)
            yield got is not False
        finally:
            await connection.close()


def cache_key_of(use: KeychainUse, entry: KeychainEntry) -> str:
    """Return the key an entry is kept under: that of its execution, its playbook's path, or the organization."""
    match entry.scope:
        case "local":
            # Without an execution (a check of a playbook, say) nothing is shared.
            return f"local/{use.execution_id or 0}#{entry.name}"
        case "global":
            return f"global/{use.catalog_path}#{entry.name}"
        case "shared":
            return f"shared#{entry.name}"


def _lock_number(scope: Scope, cache_key: str) -> int:
    name = "\0".join(("noetl keychain", scope.tenant_id, scope.organization_id, cache_key))
    return int.from_bytes(blake3(name.encode()).digest(length=8), "big", signed=True)
