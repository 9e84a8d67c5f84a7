"""Rotation of master keys: every sealed row goes over to the newest key; keys that no row names any more are removed.

Rows that cannot be opened are left as they are and reported, and their keys are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from noetl.errors import ConfigError, Corrupt
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.model.stream import Scope
from noetl.services.credentials.keyring import Key, KeyRing
from noetl.services.credentials.sealed_rows import Place, hold_keys, hold_keys_alone, seal, unseal

_BATCH = 100


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rotation did."""

    key_id: str
    """The key that every row is sealed with now."""
    credentials: int
    keychain: int
    unreadable: tuple[str, ...]
    """Rows that did not open, as `tenant/organization: name`."""
    removed_keys: tuple[str, ...]
    unused_keys: tuple[str, ...]
    """Keys that no row needs and that are still there: in the environment variable, or kept on purpose."""


class _Table(NamedTuple):
    """A table of sealed rows: its key beside the organization, and its sealed columns with their kind of place."""

    name: str
    key: str
    sealed: tuple[tuple[str, str], ...]
    place: tuple[str, ...]


_CREDENTIALS = _Table("credential", "name", (("data_encrypted", "credential"),), ("name", "type"))
_KEYCHAIN = _Table(
    "keychain",
    "cache_key",
    (("data_encrypted", "keychain entry"), ("renew_config_encrypted", "keychain renewal")),
    ("cache_key",),
)


async def rotate(database: Database, keys: KeyRing, *, keep_old_keys: bool = False) -> Rotation:
    """Seal all rows of all organizations under the newest key, then remove what is not needed any more."""
    newest = keys.newest()
    counts = {_CREDENTIALS: 0, _KEYCHAIN: 0}
    unreadable: list[str] = []
    for scope in await _scopes(database, newest):
        for table in counts:
            done, left = await _reseal_all(database, keys, newest, scope, table)
            counts[table] += done
            unreadable += [f"{scope.tenant_id}/{scope.organization_id}: {name}" for name in left]
    removed, unused = await _remove_unused(database, keys, keep=keep_old_keys)
    return Rotation(
        key_id=newest.key_id,
        credentials=counts[_CREDENTIALS],
        keychain=counts[_KEYCHAIN],
        unreadable=tuple(unreadable),
        removed_keys=tuple(removed),
        unused_keys=tuple(unused),
    )


async def _scopes(database: Database, newest: Key) -> list[Scope]:
    async with database.transaction(None) as connection:
        rows = await connection.fetch(
            "SELECT DISTINCT tenant_id, organization_id FROM noetl.sealed_rows() WHERE key_id <> $1 ORDER BY 1, 2",
            newest.key_id,
        )
    return [Scope(*row) for row in rows]


async def _reseal_all(
    database: Database, keys: KeyRing, newest: Key, scope: Scope, table: _Table
) -> tuple[int, list[str]]:
    done, after = 0, ""
    left: list[str] = []
    columns = dict.fromkeys((table.key, *table.place, *(column for column, _ in table.sealed), "key_id"))
    question = (
        f"SELECT {', '.join(columns)} FROM noetl.{table.name} WHERE tenant_id = $1 AND organization_id = $2"  # noqa: S608
        f" AND key_id <> $3 AND {table.key} > $4 ORDER BY {table.key} LIMIT {_BATCH} FOR UPDATE"
    )
    while True:
        async with database.transaction(scope) as connection:
            await hold_keys(connection)
            rows = await connection.fetch(question, scope.tenant_id, scope.organization_id, newest.key_id, after)
            for row in rows:
                after = row[table.key]
                try:
                    await _reseal(connection, keys, newest, scope, table, row)
                except (Corrupt, ConfigError):
                    left.append(after)
                else:
                    done += 1
        if len(rows) < _BATCH:
            return done, left


async def _reseal(connection: Connection, keys: KeyRing, newest: Key, scope: Scope, table: _Table, row: Any) -> None:
    key = keys.key(row["key_id"])
    fresh = []
    for column, kind in table.sealed:
        place = Place.of(kind, scope, *(row[name] for name in table.place))
        sealed = row[column]
        fresh.append(None if sealed is None else seal(newest, unseal(key, sealed, place), place))
    changes = ", ".join(f"{column} = ${5 + index}" for index, (column, _) in enumerate(table.sealed))
    await connection.execute(
        f"UPDATE noetl.{table.name} SET key_id = $4, {changes}"  # noqa: S608
        f" WHERE tenant_id = $1 AND organization_id = $2 AND {table.key} = $3",
        scope.tenant_id,
        scope.organization_id,
        row[table.key],
        newest.key_id,
        *fresh,
    )


async def _remove_unused(database: Database, keys: KeyRing, *, keep: bool) -> tuple[list[str], list[str]]:
    removed: list[str] = []
    unused: list[str] = []
    async with database.transaction(None) as connection:
        # A process that still seals with an old key has either written its row by now or will choose its key anew.
        await hold_keys_alone(connection)
        rows = await connection.fetch("SELECT DISTINCT key_id FROM noetl.sealed_rows()")
        needed = {row["key_id"] for row in rows} | {keys.newest().key_id}
        for key in keys.all():
            if key.key_id in needed:
                continue
            (removed if not keep and keys.remove(key.key_id) else unused).append(key.key_id)
    return removed, unused
