"""Rows copied between a real PostgreSQL, DuckDB files and an HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Credential
from noetl.engine.tools.transfer.tool import TransferTool

pytestmark = pytest.mark.service

TAKEN = web.AppKey("taken", list[Any])
_TABLE = "(id int PRIMARY KEY, name text, at timestamptz, amount numeric(10, 2), doc {json}, tags text[], raw {bytes})"
_ROWS = (
    "SELECT i AS id, 'n' || i AS name, timestamptz '2024-01-01 00:00:00+00' AS at, i * 1.5 AS amount, "
    """'{"a": [1, "x"]}'::jsonb AS doc, ARRAY['a,b', NULL, '"'] AS tags, '\\xdead'::bytea AS raw """
    "FROM generate_series(1, 25) AS i"
)


@pytest.fixture
async def caller(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Caller("transfer", "pg", {"pg": Credential("pg", "postgres", {"dsn": empty_url})}) as caller:
        yield caller


@pytest.fixture
async def database(empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_url)
    await connection.execute(f"CREATE TABLE target {_TABLE.format(json='jsonb', bytes='bytea')}")
    yield connection
    await connection.close()


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def give(_: web.Request) -> web.Response:
        rows = [{"id": number, "who": {"name": f"n{number}"}, "doc": "1"} for number in range(1, 8)]
        return web.json_response({"page": {"items": rows}})

    async def take(request: web.Request) -> web.Response:
        rows = await request.json()
        if any(row["id"] == 20 for row in rows) and "picky" in request.query:
            return web.Response(status=503)
        request.app[TAKEN].append((request.headers["Idempotency-Key"], rows))
        return web.Response()

    app = web.Application()
    app[TAKEN] = []
    app.router.add_get("/rows", give)
    app.router.add_post("/rows", take)
    async with TestServer(app) as server:
        yield server


async def run(caller: Caller, source: Any, target: Any, **options: Any) -> Outcome:
    return await TransferTool().run(caller.call(source=source, target=target, **{"chunk_size": 10, **options}))


async def good(caller: Caller, source: Any, target: Any, **options: Any) -> Any:
    outcome = await run(caller, source, target, **options)
    assert outcome.error is None, outcome.error
    return outcome.data


async def test_rows_of_every_type_come_through_from_table_to_table(
    caller: Caller, database: asyncpg.Connection
) -> None:
    counts = await good(caller, {"type": "postgres", "query": f"{_ROWS};"}, {"type": "postgres", "table": "target"})

    assert counts == {"status": "ok", "rows_read": 25, "rows_written": 25, "chunks": 3}
    assert (
        await database.fetchval(f"SELECT count(*) FROM ({_ROWS}) AS s JOIN target AS t ON t.* IS NOT DISTINCT FROM s.*")
        == 25
    )


async def test_an_overwritten_table_has_only_the_new_rows_and_keeps_the_old_when_it_fails(
    caller: Caller, database: asyncpg.Connection
) -> None:
    target = {"type": "postgres", "table": "public.target", "mode": "overwrite"}
    await database.execute("INSERT INTO target(id, name) VALUES (100, 'old')")

    failing = await run(
        caller, {"type": "postgres", "query": "SELECT i / 20 AS id FROM generate_series(1, 40) i"}, target
    )
    assert failing.error is not None
    assert (failing.error.kind, failing.error.source) == ("db_constraint", "transfer")
    assert failing.data == {"status": "error", "rows_read": 10, "rows_written": 0, "chunks": 0}
    assert await database.fetchval("SELECT array_agg(id) FROM target") == [100]
    await good(caller, {"type": "postgres", "query": "SELECT 1 AS id"}, target)
    assert await database.fetchval("SELECT array_agg(id) FROM target") == [1]


async def test_an_upsert_changes_what_is_there_and_adds_the_rest(caller: Caller, database: asyncpg.Connection) -> None:
    await database.execute("INSERT INTO target(id, name, amount) VALUES (1, 'old', 5), (9, 'other', 5)")
    query = "SELECT * FROM (VALUES (1, 'first'), (1, 'last'), (2, 'new')) AS v(number, title)"
    target = {"type": "postgres", "table": "target", "mode": "upsert", "key": "id"}
    target["mapping"] = {"id": "number", "name": "title"}

    counts = await good(caller, {"type": "postgres", "query": query}, target)

    assert counts["rows_written"] == 2
    assert await database.fetch("SELECT id, name, amount::int AS n FROM target ORDER BY id") == [
        (1, "last", 5), (2, "new", None), (9, "other", 5),
    ]  # fmt: skip


async def test_rows_go_to_a_duckdb_file_and_back(caller: Caller, database: asyncpg.Connection, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    with duckdb.connect(file) as made:
        made.execute(
            'CREATE TABLE "kept" (id int PRIMARY KEY, name text, "at" timestamptz, amount decimal(10, 2), doc json, tags text[], raw blob)'
        )
    there = {"type": "duckdb", "database": file, "table": "kept"}

    await good(caller, {"type": "postgres", "query": _ROWS}, {**there, "mode": "overwrite"})
    await good(caller, {"type": "postgres", "query": _ROWS}, {**there, "mode": "upsert", "key": ["id"]})
    counts = await good(caller, there, {"type": "postgres", "table": "target"})

    assert counts == {"status": "ok", "rows_read": 25, "rows_written": 25, "chunks": 3}
    assert (
        await database.fetchval(f"SELECT count(*) FROM ({_ROWS}) AS s JOIN target AS t ON t.* IS NOT DISTINCT FROM s.*")
        == 25
    )


async def test_both_ends_may_be_the_same_file_and_a_failure_leaves_it_as_it_was(caller: Caller, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    with duckdb.connect(file) as made:
        made.execute("CREATE TABLE a AS SELECT range AS id FROM range(25); CREATE TABLE b(id int CHECK (id < 20))")
    target = {"type": "duckdb", "database": file, "table": "b"}

    failing = await run(caller, {"type": "duckdb", "database": file, "table": "a"}, target)
    counts = await good(caller, {"type": "duckdb", "database": file, "query": "FROM a WHERE id < 15"}, target)

    assert failing.error is not None
    assert failing.error.kind == "db_constraint"
    assert counts["chunks"] == 2
    with duckdb.connect(file) as made:
        assert made.execute("SELECT count(*), min(id) FROM b").fetchall() == [(15, 0)]


async def test_an_answer_goes_into_a_table_by_its_path_and_mapping(
    caller: Caller, database: asyncpg.Connection, server: TestServer
) -> None:
    source = {
        "type": "http",
        "url": str(server.make_url("/rows")),
        "data_path": "$.page.items",
        "auth": {"type": "bearer", "token": "t"},
    }
    target = {"type": "postgres", "table": "target", "mapping": {"id": "id", "name": "who.name", "doc": "doc"}}

    counts = await good(caller, source, target, chunk_size=3)

    assert counts == {"status": "ok", "rows_read": 7, "rows_written": 7, "chunks": 3}
    assert await database.fetchval("SELECT count(*) FROM target WHERE name = 'n' || id AND doc = '\"1\"'") == 7
    lost = (await run(caller, {**source, "data_path": "page.nothing"}, target)).error
    assert lost is not None
    assert "'nothing' is missing" in lost.message


async def test_rows_are_posted_chunk_by_chunk_with_keys_of_their_own(
    caller: Caller, database: asyncpg.Connection, server: TestServer
) -> None:
    target = {"type": "http", "url": str(server.make_url("/rows")), "auth": {"type": "bearer", "token": "t"}}
    source = {"type": "postgres", "query": _ROWS}

    counts = await good(caller, source, target)

    taken = server.app[TAKEN]
    assert counts == {"status": "ok", "rows_read": 25, "rows_written": 25, "chunks": 3}
    assert [key for key, _ in taken] == ["key-1-1", "key-1-2", "key-1-3"]
    assert [row["id"] for _, rows in taken for row in rows] == list(range(1, 26))
    assert taken[0][1][0]["doc"] == {"a": [1, "x"]}
    stopped = await run(caller, source, {**target, "url": f"{target['url']}?picky=1"})
    assert stopped.error is not None
    assert (stopped.error.kind, stopped.error.retryable) == ("server_error", True)
    assert stopped.data == {"status": "error", "rows_read": 20, "rows_written": 10, "chunks": 1}


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ({"type": "ftp"}, {"type": "postgres"}, "`source`"),
        ({"type": "postgres"}, {"type": "postgres", "table": "target"}, "`query` or `table`"),
        ({"type": "postgres", "query": "SELECT 1; SELECT 2"}, {"type": "postgres", "table": "target"}, "one statement"),
        ({"type": "postgres", "query": "SELECT 1 AS id"}, {"type": "postgres", "table": "nowhere"}, "no table 'nowhere'"),
        ({"type": "postgres", "query": "SELECT 1 AS x"}, {"type": "postgres", "table": "target"}, "no column x"),
        ({"type": "postgres", "query": "SELECT 1"}, {"type": "postgres", "table": "target", "mode": "guess"}, "mode"),
        ({"type": "postgres", "query": "SELECT 1"}, {"type": "postgres", "table": "target", "mode": "upsert"}, "key"),
        ({"type": "postgres", "query": "SELECT 1"}, {"type": "http", "url": "http://x", "mode": "upsert"}, "only append"),
        ({"type": "http"}, {"type": "postgres", "table": "target"}, "`url`"),
    ],
)  # fmt: skip
async def test_a_transfer_that_cannot_be_done_says_why(
    caller: Caller, database: asyncpg.Connection, source: Any, target: Any, words: str
) -> None:
    problem = (await run(caller, source, target)).error

    assert problem is not None
    assert problem.kind == "schema"
    assert words in problem.message


async def test_a_cancelled_transfer_leaves_nothing_behind(caller: Caller, database: asyncpg.Connection) -> None:
    await database.execute(
        "CREATE VIEW slow AS SELECT i AS id, pg_sleep(CASE WHEN i > 15 THEN 100 ELSE 0 END)::text AS name FROM generate_series(1, 20) i"
    )
    task = asyncio.create_task(
        run(caller, {"type": "postgres", "table": "slow"}, {"type": "postgres", "table": "target"})
    )
    seen = "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep' AND pid <> pg_backend_pid())"
    waiting = f"DO $$ BEGIN LOOP EXIT WHEN {seen} = %s; PERFORM pg_stat_clear_snapshot(); END LOOP; END $$"
    await database.execute(waiting % 1, timeout=30)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await database.execute(waiting % 0, timeout=30)
    assert await database.fetchval("SELECT count(*) FROM target") == 0
