"""Rotation: all rows of all organizations go over to the newest key; no key that a row needs is ever removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noetl.errors import ConfigError
from noetl.kernel.ledger.postgres.database import Database
from noetl.language.playbook.model import KeychainEntry
from noetl.model.stream import Scope
from noetl.services.credentials.keychain.rows import Held, KeychainRows, KeychainUse
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.sealed_rows import hold_keys
from noetl.services.credentials.store import CredentialStore

pytestmark = pytest.mark.service

ACME, GLOBEX = Scope("acme", "care"), Scope("globex", "care")
LATER = datetime.now(UTC) + timedelta(hours=1)
ENTRY = KeychainEntry(name="tok", kind="oauth2", scope="shared", auto_renew=True)


async def fill(store: CredentialStore, rows: KeychainRows, count: int = 3) -> None:
    """Put credentials of two organizations and a keychain entry."""
    for scope in (ACME, GLOBEX):
        for index in range(count):
            await store.put(scope, f"c{index}", "bearer", {"token": f"{scope.tenant_id} {index}"})
    await rows.write(KeychainUse(ACME, "p", 1), ENTRY, Held("d", {"access_token": "kept"}, [], LATER, LATER))


async def key_ids(database: Database) -> set[str]:
    async with database.transaction(None) as connection:
        return {row["key_id"] for row in await connection.fetch("SELECT key_id FROM noetl.sealed_rows()")}


async def test_all_rows_go_over_to_a_new_key_and_the_old_one_is_removed(database: Database, tmp_path: Path) -> None:
    ring = KeyRing.load(tmp_path, {}, create=True)
    store, rows, old = CredentialStore(database, ring), KeychainRows(database, ring), ring.newest()
    await fill(store, rows)
    done = await store.rotate(new_key=True)
    assert (done.credentials, done.keychain, done.unreadable) == (6, 1, ())
    assert (done.removed_keys, done.unused_keys) == ((old.key_id,), ())
    assert done.key_id == ring.newest().key_id != old.key_id
    assert await key_ids(database) == {done.key_id}
    assert ring.all() == (ring.newest(),)
    for scope in (ACME, GLOBEX):
        assert (await store.get(scope, "c2")).data == {"token": f"{scope.tenant_id} 2"}
    held = await rows.read(ACME, "shared#tok")
    assert held is not None
    assert held.fields == {"access_token": "kept"}
    assert [entry for _, entry in await rows.due(ACME, LATER)] == [ENTRY]


async def test_more_rows_than_fit_in_one_go_are_all_rotated(database: Database) -> None:
    old, new = bytes(range(32)), bytes(range(1, 33))
    store = CredentialStore(database, KeyRing([old]))
    await asyncio.gather(*(store.put(ACME, f"c{index:03}", "bearer", {"token": "t"}) for index in range(205)))
    done = await CredentialStore(database, KeyRing([new, old])).rotate()
    assert done.credentials == 205
    assert await key_ids(database) == {done.key_id}


async def test_with_keys_of_the_variable_the_unused_one_is_named_and_rows_open_without_it(database: Database) -> None:
    old, new = bytes(range(32)), bytes(range(1, 33))
    before = CredentialStore(database, KeyRing([old]))
    await fill(before, KeychainRows(database, KeyRing([old])))
    done = await CredentialStore(database, KeyRing([new, old])).rotate()
    assert (done.removed_keys, done.unused_keys) == ((), (KeyRing([old]).newest().key_id,))
    assert (await CredentialStore(database, KeyRing([new])).get(ACME, "c0")).data == {"token": "acme 0"}
    with pytest.raises(ConfigError):
        await before.get(ACME, "c0")


async def test_old_rows_and_their_key_stay_until_they_can_be_read(database: Database, tmp_path: Path) -> None:
    lost = CredentialStore(database, KeyRing([bytes(range(32))]))
    await lost.put(ACME, "stray", "bearer", {"token": "t"})
    ring = KeyRing.load(tmp_path, {}, create=True)
    store = CredentialStore(database, ring)
    await store.put(ACME, "mine", "bearer", {"token": "t"})
    done = await store.rotate(new_key=True)
    assert (done.credentials, done.unreadable) == (1, ("acme/care: stray",))
    assert (await lost.get(ACME, "stray")).data == {"token": "t"}
    assert (await store.get(ACME, "mine")).data == {"token": "t"}


async def test_old_keys_are_kept_when_asked_for(database: Database, tmp_path: Path) -> None:
    ring = KeyRing.load(tmp_path, {}, create=True)
    old = ring.newest()
    done = await CredentialStore(database, ring).rotate(new_key=True, keep_old_keys=True)
    assert (done.removed_keys, done.unused_keys) == ((), (old.key_id,))
    assert ring.key(old.key_id) == old


async def test_a_key_is_not_removed_under_a_writer_that_has_chosen_it(database: Database, tmp_path: Path) -> None:
    """A row sealed with the old key while rotation is at work keeps the key."""
    ring = KeyRing.load(tmp_path, {}, create=True)
    store, old = CredentialStore(database, ring), ring.newest()
    async with database.transaction(ACME) as connection:
        await hold_keys(connection)
        rotating = asyncio.create_task(store.rotate(new_key=True))
        await waiting_for_lock(database)
        assert not rotating.done()
        assert ring.key(old.key_id) == old
        await connection.execute(
            "INSERT INTO noetl.credential (tenant_id, organization_id, name, type, data_encrypted, key_id)"
            " VALUES ('acme', 'care', 'late', 'bearer', '', $1)",
            old.key_id,
        )
    assert (await rotating).removed_keys == ()
    assert ring.key(old.key_id) == old


async def waiting_for_lock(database: Database) -> None:
    """Return when somebody waits for an advisory lock."""
    async with asyncio.timeout(20):
        while True:
            async with database.transaction(None) as connection:
                if await connection.fetchval(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                ):
                    return
