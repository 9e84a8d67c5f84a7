"""Built-in types are asked for once; types of a schema are asked for anew, since they may change."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from noetl.kernel.ledger.postgres.database import Database

pytestmark = pytest.mark.service

ARRAYS = "SELECT $1::bigint[] AS numbers, $2::timestamptz[] AS times, $3::interval[] AS spans"


async def _asked(connection: asyncpg.Connection, query: str, *values: Any) -> tuple[asyncpg.Record | None, int]:
    """Return a row, and how often the server was asked for types meanwhile."""
    seen: list[str] = []
    with connection.query_logger(lambda told: seen.append(told.query)):
        row = await connection.fetchrow(query, *values)
    return row, sum("typeinfo_tree" in query for query in seen)


async def test_only_the_first_connection_asks_what_built_in_types_are(database: Database) -> None:
    first, second = await database.connect(), await database.connect("projector")
    try:
        row, _ = await _asked(first, ARRAYS, [1, 2**60], [], None)
        again, asked = await _asked(second, ARRAYS, [1, 2**60], [], None)
        assert row == again == ([1, 2**60], [], None)
        assert asked == 0
        pool = await database.pool()
        async with pool.acquire() as pooled, pooled.transaction():
            assert (await _asked(pooled._con, ARRAYS, [3], [], []))[1] == 0
    finally:
        await first.close()
        await second.close()


async def test_types_of_a_schema_are_asked_for_on_each_connection(owner_url: str) -> None:
    database = Database(owner_url.replace("noetl_owner", "noetl_admin"))
    first, second = await database.connect(), await database.connect()
    try:
        await first.execute("SET ROLE NONE; CREATE TYPE public.pair AS (a int, b text)")
        assert await _asked(first, "SELECT (1, 'x')::public.pair AS pair") == (((1, "x"),), 1)
        await first.execute("ALTER TYPE public.pair ADD ATTRIBUTE c bigint")
        assert await _asked(second, "SELECT (1, 'x', 3)::public.pair AS pair") == (((1, "x", 3),), 1)
    finally:
        await first.close()
        await second.close()
