"""Whether a database has the schema this program was written for: refused if not, unless its owner may bring it there."""

from __future__ import annotations

import asyncio

import asyncpg

from noetl.errors import Unsupported
from noetl.kernel.ledger.postgres.database import Database
from noetl.runtime.postgres import migrations


async def check_schema(database: Database, owner_url: str | None, how: str = "run `noetl db migrate`") -> None:
    """Refuse a schema this program was not written for; the embedded database is brought up to date by itself."""
    wanted = migrations.head()
    found = await _revision(database)
    migrations.check_known(found)
    if found != wanted:
        if owner_url is None:
            raise Unsupported(f"the database schema is at revision {found or 'none'}, and {wanted} is needed", hint=how)
        await asyncio.to_thread(migrations.upgrade, owner_url)


async def _revision(database: Database) -> str | None:
    # Before the first migration the roles do not exist yet, so the very login fails.
    missing = (
        asyncpg.UndefinedTableError,
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidParameterValueError,
        asyncpg.UndefinedObjectError,
    )
    try:
        connection = await database.connect()
    except missing:
        return None
    try:
        return str(await connection.fetchval("SELECT version_num FROM public.schema_revision"))
    except missing:
        return None
    finally:
        await connection.close()
