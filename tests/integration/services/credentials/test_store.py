"""Credentials in the database: encrypted, bound to their place, and nowhere to be seen."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from noetl.errors import ConfigError, Corrupt, InputError, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.services.credentials.access import CredentialCache, ScopedCredentials
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.store import CredentialStore

pytestmark = pytest.mark.service

ACME, GLOBEX = Scope("acme", "care"), Scope("globex", "care")
KEY, OTHER_KEY = (bytes(range(start, start + 32)) for start in (0, 100))
CANARY = "canary-6f1b-password"
DATA = {"db_host": "db.example", "db_port": 5432, "db_user": "ann", "db_password": CANARY, "db_name": "shop"}


@pytest.fixture
def store(database: Database) -> CredentialStore:
    """A store with one key."""
    return CredentialStore(database, KeyRing([KEY]))


def everything(owner_url: str) -> Iterator[str]:
    """Print every row of every table in every schema that is not PostgreSQL's own, as a dump would."""
    with psycopg.connect(owner_url.replace("noetl_owner@", "noetl_admin@")) as admin:
        tables = admin.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        assert len(tables) > 10
        for (table,) in tables:
            for (row,) in admin.execute(f"SELECT t::text FROM {table} AS t".encode()):
                yield row


async def changed(owner_url: str, statement: str) -> None:
    """Change rows as somebody with access to the database would."""
    admin = await asyncpg.connect(owner_url.replace("noetl_owner@", "noetl_admin@"))
    await admin.execute(statement)
    await admin.close()


async def test_what_is_put_comes_back(store: CredentialStore) -> None:
    await store.put(ACME, "pg", "postgres", DATA, description="the shop", tags=["a", "b"], meta={"team": "x"})
    found = await store.get(ACME, "pg")
    assert (found.name, found.type, found.data) == ("pg", "postgres", DATA)
    info = await store.describe(ACME, "pg")
    assert (info.description, info.tags, info.meta) == ("the shop", ("a", "b"), {"team": "x"})
    assert info.fields == tuple(sorted(DATA))


async def test_a_second_put_takes_the_place_of_the_first(store: CredentialStore) -> None:
    first = await store.put(ACME, "x", "bearer", {"token": "one"}, tags=["old"])
    second = await store.put(ACME, "x", "basic", {"username": "u", "password": "two"})
    assert (second.created_at, second.tags) == (first.created_at, ())
    assert second.updated_at > first.updated_at
    assert (await store.get(ACME, "x")).data == {"username": "u", "password": "two"}
    assert [one.type for one in await store.list(ACME)] == ["basic"]


async def test_each_organization_has_names_of_its_own(store: CredentialStore) -> None:
    for scope in (ACME, GLOBEX):
        await store.put(scope, "x", "bearer", {"token": f"of {scope.tenant_id}"})
    await store.delete(GLOBEX, "x")
    assert (await store.get(ACME, "x")).data == {"token": "of acme"}
    for asked in (store.get, store.describe, store.delete):
        with pytest.raises(NotFound, match="no credential 'x'"):
            await asked(GLOBEX, "x")
    assert await store.list(GLOBEX) == []


async def test_the_list_is_in_order_and_by_type(store: CredentialStore) -> None:
    await store.put(ACME, "b", "bearer", {"token": "t"})
    await store.put(ACME, "a", "postgres", DATA)
    assert [one.name for one in await store.list(ACME)] == ["a", "b"]
    assert [one.name for one in await store.list(ACME, "bearer")] == ["b"]


@pytest.mark.parametrize(
    ("name", "type_name", "data"),
    [
        ("a/b", "bearer", {"token": CANARY}),
        ("", "bearer", {"token": CANARY}),
        ("x", "postgres", {"db_password": CANARY}),
        ("x", "unheard-of", {"token": CANARY}),
        ("x", "bearer", {"token": CANARY, "more": 1e17}),
        ("x", "bearer", {"token": {1, 2}}),
    ],
)
async def test_what_is_wrong_is_refused_without_being_shown(
    store: CredentialStore, name: str, type_name: str, data: dict[str, Any]
) -> None:
    with pytest.raises(InputError) as refused:
        await store.put(ACME, name, type_name, data)
    shown = "".join(traceback.format_exception(refused.value))
    assert CANARY not in shown
    assert "1e+17" not in shown
    assert await store.list(ACME) == []


async def test_the_secret_is_nowhere_in_the_database_nor_in_any_repr(
    store: CredentialStore, owner_url: str, database: Database
) -> None:
    info = await store.put(ACME, "pg", "postgres", DATA)
    found = await store.get(ACME, "pg")
    dumped = "\n".join(await asyncio.to_thread(list, everything(owner_url)))
    assert "db_password" in dumped, "the scan sees the row"
    for form in (CANARY, CANARY.encode().hex(), "db.example", b"db.example".hex()):
        assert form not in dumped
        assert form not in f"{found!r} {info!r} {store!r} {found}"


async def test_another_key_does_not_open_it_and_says_which_is_needed(
    store: CredentialStore, database: Database
) -> None:
    info = await store.put(ACME, "pg", "postgres", DATA)
    with pytest.raises(ConfigError, match=info.key_id):
        await CredentialStore(database, KeyRing([OTHER_KEY])).get(ACME, "pg")


TAMPERED = {
    "other bytes": "UPDATE noetl.credential SET data_encrypted ="
    " set_byte(data_encrypted, 70, (get_byte(data_encrypted, 70) + 1) % 256)",
    "no bytes": "UPDATE noetl.credential SET data_encrypted = ''",
    "another type": "UPDATE noetl.credential SET type = 'bearer'",
    "another row's data": "UPDATE noetl.credential SET data_encrypted = (SELECT data_encrypted FROM noetl.credential"
    " WHERE name = 'other')",
}


@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED)
async def test_a_row_that_was_changed_does_not_open(store: CredentialStore, owner_url: str, statement: str) -> None:
    await store.put(ACME, "pg", "postgres", DATA)
    await store.put(ACME, "other", "postgres", DATA)
    await changed(owner_url, statement)
    with pytest.raises(Corrupt, match="'pg' does not open"):
        await store.get(ACME, "pg")


async def test_a_row_copied_to_another_tenant_does_not_open(store: CredentialStore, owner_url: str) -> None:
    await store.put(ACME, "pg", "postgres", DATA)
    await changed(
        owner_url,
        "INSERT INTO noetl.credential (tenant_id, organization_id, name, type, data_encrypted, key_id)"
        " SELECT 'globex', organization_id, name, type, data_encrypted, key_id FROM noetl.credential",
    )
    with pytest.raises(Corrupt):
        await store.get(GLOBEX, "pg")
    assert (await store.get(ACME, "pg")).data == DATA


async def test_raw_sql_sees_only_its_organization(store: CredentialStore, database: Database) -> None:
    for scope in (ACME, GLOBEX):
        await store.put(scope, "x", "bearer", {"token": "t"})
    for scope, seen in ((ACME, ["acme"]), (None, [])):
        async with database.transaction(scope) as connection:
            rows = await connection.fetch("SELECT tenant_id FROM noetl.credential")
        assert [row["tenant_id"] for row in rows] == seen


async def test_a_change_is_told_without_data(database: Database) -> None:
    told: list[tuple[object, ...]] = []

    async def on_change(*change: object) -> None:
        told.append(change)

    store = CredentialStore(database, KeyRing([KEY]), on_change)
    await store.put(ACME, "x", "bearer", {"token": CANARY})
    await store.delete(ACME, "x")
    assert told == [(ACME, "x", "changed"), (ACME, "x", "removed")]


async def test_tools_get_credentials_of_their_organization_and_the_redactor_learns_of_the_secrets(
    store: CredentialStore,
) -> None:
    await store.put(ACME, "pg", "postgres", DATA)
    redactor = Redactor()
    credentials = ScopedCredentials(CredentialCache(store), ACME, redactor)
    assert (await credentials.credential("pg")).data["db_password"] == CANARY
    assert redactor.redact(f"{CANARY} at db.example by ann") == "*** at db.example by ann"
    with pytest.raises(NotFound):
        await credentials.credential("pg2")


async def test_a_change_is_seen_when_the_time_a_credential_is_kept_has_passed(store: CredentialStore) -> None:
    now = 0.0
    cache = CredentialCache(store, keep_seconds=5, clock=lambda: now)
    await store.put(ACME, "x", "bearer", {"token": "one"})
    assert (await cache.get(ACME, "x")).data == {"token": "one"}
    await store.put(ACME, "x", "bearer", {"token": "two"})
    now = 4.9
    assert (await cache.get(ACME, "x")).data == {"token": "one"}
    now = 5.0
    assert (await cache.get(ACME, "x")).data == {"token": "two"}
