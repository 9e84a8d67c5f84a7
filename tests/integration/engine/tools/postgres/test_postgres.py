"""The postgres tool against a real server: results, transactions, parameters, problems, cancellation and pools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Credential
from noetl.engine.tools.postgres import pools
from noetl.engine.tools.postgres.target import find_target
from noetl.engine.tools.postgres.tool import PostgresTool

pytestmark = pytest.mark.service


@pytest.fixture
async def caller(empty_url: str) -> AsyncIterator[Caller]:
    credential = Credential("pg", "postgres", {"dsn": empty_url})
    async with Caller("postgres", "pg", {"pg": credential}) as caller:
        yield caller


@pytest.fixture
async def observer(empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_url)
    yield connection
    await connection.close()


async def run(caller: Caller, command: Any, **options: Any) -> Outcome:
    return await PostgresTool().run(caller.call(command=command, **options))


async def good(caller: Caller, command: Any, **options: Any) -> Any:
    outcome = await run(caller, command, **options)
    assert outcome.error is None, outcome.error
    return outcome.data


async def test_the_last_statement_counts(caller: Caller) -> None:
    outcome = await run(
        caller,
        "CREATE TABLE t(id int, name text); INSERT INTO t VALUES (1, 'a;b'), (2, NULL); SELECT * FROM t ORDER BY id;",
    )

    assert outcome.data == {
        "status": "ok",
        "rows": [{"id": 1, "name": "a;b"}, {"id": 2, "name": None}],
        "row_count": 2,
        "columns": ["id", "name"],
        "statement_count": 3,
        "command_0": {"status": "ok", "rows": [], "row_count": 0, "columns": []},
        "command_1": {"status": "ok", "rows": [], "row_count": 2, "columns": []},
    }
    assert outcome.helpers == {"pg": {"code": "00000", "sqlstate": "00000"}}


async def test_a_result_tells_the_types_that_json_cannot(caller: Caller) -> None:
    query = (
        "SELECT 1.50::numeric AS price, now() AS at, 2::float8 AS whole, ARRAY[1.5] AS parts, 1::int8 AS n, 'x' AS text"
    )
    types = {"price": "decimal", "at": "timestamp", "whole": "double", "parts": "array<decimal>"}
    for _ in range(3):  # prepared only from the second time on
        assert (await good(caller, query))["types"] == types
    bound = f"SELECT * FROM ({query}) AS t WHERE n = $1"
    for _ in range(2):
        assert (await good(caller, bound, params=[1]))["types"] == types
    large = await good(caller, "SELECT 9007199254740993 AS n")
    assert (large["rows"], large["types"]) == ([{"n": "9007199254740993"}], {"n": "bigint"})
    # At once, so that one meets what another is still asking the server about.
    many = await asyncio.gather(*(good(caller, f"{query} -- together") for _ in range(4)))
    assert [one["types"] for one in many] == [types] * 4


async def test_a_command_tells_how_many_rows_it_touched(caller: Caller) -> None:
    await good(caller, ["CREATE TABLE t(id int)", "INSERT INTO t SELECT generate_series(1, 5); -- it's done"])

    assert (await good(caller, "UPDATE t SET id = id + 1 WHERE id > 2"))["row_count"] == 3
    assert (await good(caller, "DELETE FROM t; INSERT INTO t VALUES (1)"))["row_count"] == 1
    assert (await good(caller, "DELETE FROM t RETURNING id"))["rows"] == [{"id": 1}]
    assert (await good(caller, "WITH a AS (INSERT INTO t VALUES (7), (8) RETURNING id) UPDATE t SET id = 0"))[
        "row_count"
    ] == 0
    assert (await good(caller, "WITH delete AS (DELETE FROM t RETURNING id) SELECT count(*) AS n FROM delete"))[
        "rows"
    ] == [{"n": 2}]
    assert (await good(caller, "(SELECT 1 AS x) UNION ALL (SELECT 2)"))["row_count"] == 2


async def test_an_empty_result_has_its_columns_every_time(caller: Caller) -> None:
    for _ in range(3):
        assert await good(caller, "SELECT 1 AS a, 'x' AS b WHERE false") == {
            "status": "ok", "rows": [], "row_count": 0, "columns": ["a", "b"], "statement_count": 1,
        }  # fmt: skip


async def test_a_failing_statement_takes_all_before_it_back(caller: Caller) -> None:
    await good(caller, "CREATE TABLE t(id int PRIMARY KEY)")

    for last in ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1) RETURNING id"):
        outcome = await run(caller, f"INSERT INTO t VALUES (1); {last}")
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.pg_code, outcome.error.retryable) == ("db_constraint", "23505", False)
        assert outcome.error.details["constraint_name"] == "t_pkey"
        assert outcome.helpers == {"pg": {"code": "23505", "sqlstate": "23505"}}
        assert outcome.data["errors"][0]["sqlstate"] == "23505"

    assert (await good(caller, "SELECT * FROM t"))["rows"] == []


async def test_text_with_transaction_control_runs_statement_by_statement(caller: Caller) -> None:
    await good(caller, "CREATE TABLE t(id int PRIMARY KEY)")

    await run(caller, "BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (1);")
    assert (await good(caller, "VACUUM t; SELECT * FROM t"))["rows"] == [{"id": 1}]
    open_end = await run(caller, "BEGIN; INSERT INTO t VALUES (2)")
    assert open_end.error is not None
    assert "does not end it" in open_end.error.message
    assert (await good(caller, "SELECT * FROM t"))["rows"] == [{"id": 1}]


_FORMS: list[tuple[str, Any]] = [
    ("'2024-02-03 04:05:06.789+02'::timestamptz", "2024-02-03T02:05:06.789000+00:00"),
    ("'2024-02-03 04:05:06'::timestamp", "2024-02-03T04:05:06"),
    ("'infinity'::timestamptz", "infinity"),
    ("'-infinity'::timestamptz", "-infinity"),
    ("'infinity'::timestamp", "infinity"),
    ("'-infinity'::timestamp", "-infinity"),
    ("'infinity'::date", "infinity"),
    ("'-infinity'::date", "-infinity"),
    ("'2024-02-03'::date", "2024-02-03"),
    ("'0044-03-15 BC'::date", "0044-03-15 BC"),
    ("'0001-12-31 BC'::date", "0001-12-31 BC"),
    ("'0001-01-01'::date", "0001-01-01"),
    ("'4713-01-01 BC'::date", "4713-01-01 BC"),
    ("'9999-12-31'::date", "9999-12-31"),
    ("'10000-01-01'::date", "10000-01-01"),
    ("'5874897-12-31'::date", "5874897-12-31"),
    ("'0044-03-15 12:30:00.5 BC'::timestamp", "0044-03-15T12:30:00.500000 BC"),
    ("'0044-03-15 12:30:00+02 BC'::timestamptz", "0044-03-15T10:30:00+00:00 BC"),
    ("'4713-01-01 00:00:00 BC'::timestamp", "4713-01-01T00:00:00 BC"),
    ("'0001-01-01 00:00:00'::timestamp", "0001-01-01T00:00:00"),
    ("'9999-12-31 23:59:59.999999'::timestamp", "9999-12-31T23:59:59.999999"),
    ("'9999-12-31 23:59:59.999999+00'::timestamptz", "9999-12-31T23:59:59.999999+00:00"),
    ("'10000-01-01 01:02:03'::timestamp", "10000-01-01T01:02:03"),
    ("'294276-12-31 23:59:59.999999+00'::timestamptz", "294276-12-31T23:59:59.999999+00:00"),
    ("ARRAY['0044-03-15 BC'::date, NULL]", ["0044-03-15 BC", None]),
    ("daterange('0044-03-15 BC', 'infinity')", '["0044-03-15 BC",infinity)'),
    ("'0044-03-15 BC'::day", "0044-03-15 BC"),
    ("ROW('0044-03-15 BC', '24:00')::span", {"since": "0044-03-15 BC", "at": "24:00:00"}),
    ("'04:05:06'::time", "04:05:06"),
    ("'04:05:06.007'::time", "04:05:06.007000"),
    ("'24:00'::time", "24:00:00"),
    ("'04:05:06+02'::timetz", "04:05:06+02:00"),
    ("'04:05:06-03:30'::timetz", "04:05:06-03:30"),
    ("'24:00:00+00:00:07'::timetz", "24:00:00+00:00:07"),
    ("'1 year 2 mons 3 days 04:05:06.5'::interval", "P1Y2M3DT4H5M6.5S"),
    ("'-1 mon 2 days -00:00:01.25'::interval", "P-1M2DT-1.25S"),
    ("'0'::interval", "PT0S"),
    ("'14 mons'::interval", "P1Y2M"),
    ("'-14 mons 3 days'::interval", "P-1Y-2M3D"),
    ("'1 mon -1 day 00:00:00.000001'::interval", "P1M-1DT0.000001S"),
    ("ARRAY['3 mons'::interval]", ["P3M"]),
    ("'infinity'::interval", "infinity"),
    ("'-infinity'::interval", "-infinity"),
    ("""CAST('a' AS "char")""", "a"),
    ("""CAST('' AS "char")""", ""),
    ("""CAST('\\377' AS "char")""", "\\377"),
    ("""ARRAY['i', 'o']::"char"[]""", ["i", "o"]),
    ("(SELECT relkind FROM pg_class WHERE oid = 'pg_class'::regclass)", "r"),
    ("'a'::char(3)", "a  "),
    ("'0b7e4e0c-3f5c-4d47-9f6e-8f3d0a2b1c4d'::uuid", "0b7e4e0c-3f5c-4d47-9f6e-8f3d0a2b1c4d"),
    ("12345678901234567890.10::numeric", "12345678901234567890.10"),
    ("'NaN'::numeric", "NaN"),
    ("'-Infinity'::numeric", "-Infinity"),
    ("'NaN'::float8", "NaN"),
    ("'-Infinity'::float4", "-Infinity"),
    ("1.5::float8", 1.5),
    ("9007199254740991::int8", 9007199254740991),
    ("9007199254740993::int8", "9007199254740993"),
    ("'\\xdeadbeef'::bytea", "3q2+7w=="),
    ("""'{"a": [1, null, 12345678901234567890123]}'::jsonb""", {"a": [1, None, "12345678901234567890123"]}),
    ("""'"x"'::json""", "x"),
    ("'null'::jsonb", None),
    ("ARRAY[[1,2],[3,NULL]]", [[1, 2], [3, None]]),
    ("ARRAY['2024-01-01'::date]", ["2024-01-01"]),
    ("int4range(1, 10)", "[1,10)"),
    ("'empty'::int4range", "empty"),
    ("""words('', 'b"\\')""", r'''["","b""\\")'''),
    ("words('a b', 'c')", '["a b",c)'),
    ("tsrange('2024-01-01', NULL)", "[2024-01-01T00:00:00,)"),
    ("'{[1,3),[5,7)}'::int4multirange", ["[1,3)", "[5,7)"]),
    ("'happy'::mood", "happy"),
    ("ROW(1, 'x')::pair", {"a": 1, "b": "x"}),
    ("ROW(1, 'x'::text)", [1, "x"]),
    ("'192.168.0.1/24'::inet", "192.168.0.1/24"),
    ("'10.0.0.0/8'::cidr", "10.0.0.0/8"),
    ("'08:00:2b:01:02:03'::macaddr", "08:00:2b:01:02:03"),
    ("'12.34'::money", "$12.34"),
    ("B'1010'", "1010"),
    ("'(1,2)'::point", "(1.0,2.0)"),
    ("'<(1,2),3>'::circle", "<(1.0,2.0),3.0>"),
    ("'((0,0),(1,1))'::polygon", "((0.0,0.0),(1.0,1.0))"),
    ("'(1,1),(0,0)'::box", "(1.0,1.0),(0.0,0.0)"),
    ("'{1,-2.5,3}'::line", "{1.0,-2.5,3.0}"),
    ("'[(0,0),(1,1)]'::lseg", "[(0.0,0.0),(1.0,1.0)]"),
    ("'[(0,0),(1,1)]'::path", "[(0.0,0.0),(1.0,1.0)]"),
    ("'((0,0),(1,1))'::path", "((0.0,0.0),(1.0,1.0))"),
    ("'16/B374D848'::pg_lsn", "16/B374D848"),
    ("'(3,1)'::tid", "(3,1)"),
    ("'10:20:10,14'::pg_snapshot", "10:20:10,14"),
    ("'10:20:'::pg_snapshot", "10:20:"),
    ("'a b'::tsvector", "'a' 'b'"),
    ("'int4'::regtype", "integer"),
    ("true", True),
    ("NULL::int", None),
]  # fmt: skip


async def test_every_type_has_a_plain_form(shared_caller: Caller) -> None:
    columns = ", ".join(f"{expression} AS v{number}" for number, (expression, _) in enumerate(_FORMS))

    (row,) = (await good(shared_caller, f"SELECT {columns}"))["rows"]

    assert dict(zip((expression for expression, _ in _FORMS), row.values(), strict=True)) == dict(_FORMS)


_PARAMETERS: list[tuple[str, Any, Any]] = [
    ("int2", 7, 7),
    ("int8", "9", 9),
    ("text", 5, "5"),
    ("bool", True, True),
    ("float8", 2, 2.0),
    ("numeric(10,2)", "1.5", "1.50"),
    ("timestamptz", "2024-02-03T04:05:06Z", "2024-02-03T04:05:06+00:00"),
    ("interval", "P1M", "P1M"),
    ("interval", "P-1Y-2M3DT-1.25S", "P-1Y-2M3DT-1.25S"),
    ("date", "0044-03-15 BC", "0044-03-15 BC"),
    ("date", "infinity", "infinity"),
    ("timestamp", "0044-03-15T12:30:00.500000 BC", "0044-03-15T12:30:00.500000 BC"),
    ("timestamptz", "0044-03-15T10:30:00+00:00 BC", "0044-03-15T10:30:00+00:00 BC"),
    ("timestamptz", "294276-12-31T23:59:59.999999+00:00", "294276-12-31T23:59:59.999999+00:00"),
    ("pg_lsn", "16/B374D848", "16/B374D848"),
    ("tid", "(3,1)", "(3,1)"),
    ("words", r'''["","b""\\")''', r'''["","b""\\")'''),
    ("timetz", "24:00:00-03:30", "24:00:00-03:30"),
    ("daterange", '["0044-03-15 BC",infinity)', '["0044-03-15 BC",infinity)'),
    ('"char"', "a", "a"),
    ("uuid", "0b7e4e0c-3f5c-4d47-9f6e-8f3d0a2b1c4d", "0b7e4e0c-3f5c-4d47-9f6e-8f3d0a2b1c4d"),
    ("bytea", "3q2+7w==", "3q2+7w=="),
    ("jsonb", {"a": [1, "it's"]}, {"a": [1, "it's"]}),
    ("jsonb", [1, 2], [1, 2]),
    ("int4[]", [1, None, 3], [1, None, 3]),
    ("text[]", ['a"b', "c,d", "NULL", "\\"], ['a"b', "c,d", "NULL", "\\"]),
    ("text[]", [["a", "b"], ["c", "d"]], [["a", "b"], ["c", "d"]]),
    ("int4range", "[1,10)", "[1,10)"),
    ("mood", "happy", "happy"),
    ("mood[]", ["happy"], ["happy"]),
    ("inet", "10.0.0.1", "10.0.0.1"),
    ("date", None, None),
]  # fmt: skip


async def test_every_type_takes_a_plain_parameter(shared_caller: Caller) -> None:
    for kind, value, expected in _PARAMETERS:
        for _ in range(2):
            data = await good(shared_caller, f"SELECT :v::{kind} AS v, ':v' AS text -- :none", params={"v": value})
            assert data["rows"] == [{"v": expected, "text": ":v"}], kind


@pytest.fixture
async def shared_caller(caller: Caller) -> Caller:
    types = "CREATE TYPE pair AS (a int, b text); CREATE DOMAIN day AS date; CREATE TYPE span AS (since day, at time)"
    types += "; CREATE TYPE words AS RANGE (subtype = text)"
    await good(caller, f"CREATE TYPE mood AS ENUM ('happy'); {types}; SET lc_monetary = 'C'")
    return caller


async def test_parameters_bind_by_number_name_and_order(caller: Caller) -> None:
    await good(caller, "CREATE TABLE t(a int, b text)")

    await good(caller, "INSERT INTO t VALUES ($1, $2); INSERT INTO t VALUES ($1, 'y')", params=[1, "x"])
    await good(caller, "INSERT INTO t(b, a) VALUES (%(b)s, %(a)s)", params={"a": 2, "b": "a % b"})
    await good(caller, "INSERT INTO t VALUES (%s, %s)", params=[3, None])
    assert (await good(caller, "SELECT * FROM t ORDER BY a, b"))["rows"] == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "a % b"}, {"a": 3, "b": None},
    ]  # fmt: skip
    assert (await good(caller, "SELECT a FROM t WHERE a = ANY($1) ORDER BY a LIMIT $2", params=[[2, 3], 1]))[
        "rows"
    ] == [{"a": 2}]
    missing = await run(caller, "SELECT :nothing::int", params={"something": 1})
    assert missing.error is not None
    assert "nothing" in missing.error.message


async def test_a_changed_table_is_no_problem_for_a_statement_known_before(caller: Caller) -> None:
    await good(caller, "CREATE TABLE t(a int); INSERT INTO t VALUES (1)", pool=1)
    for _ in range(3):
        await good(caller, "SELECT * FROM t", pool=1)

    await good(caller, "ALTER TABLE t ADD b int DEFAULT 2", pool=1)

    assert (await good(caller, "SET LOCAL jit = off; SELECT * FROM t", pool=1))["rows"] == [{"a": 1, "b": 2}]
    assert (await good(caller, "SELECT * FROM t", pool=1))["rows"] == [{"a": 1, "b": 2}]


_PROBLEMS: list[tuple[str, str, str | None, bool]] = [
    ("SELEC 1", "schema", "42601", False),
    ("SELECT * FROM nowhere", "schema", "42P01", False),
    ("SELECT 'x'::int", "parse", "22P02", False),
    ("SELECT 1 / 0", "transform", "22012", False),
    ("SET LOCAL statement_timeout = 1; SELECT pg_sleep(10)", "db_timeout", "57014", True),
    ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$", "db_deadlock", "40001", True),
    ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$", "storage_quota", "53100", True),
    ("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '42501'; END $$", "auth", "42501", False),
    ("SELECT pg_terminate_backend(pg_backend_pid())", "db_connection", "08003", True),
    ("COPY t FROM STDIN", "schema", None, False),
    ("-- nothing at all", "schema", None, False),
]  # fmt: skip


async def test_a_problem_has_a_kind_a_policy_can_decide_on(caller: Caller) -> None:
    for command, kind, code, retryable in _PROBLEMS:
        problem = (await run(caller, command)).error

        assert problem is not None
        assert (problem.kind, problem.pg_code, problem.retryable) == (kind, code, retryable), command
        assert (await good(caller, "SELECT 1 AS one"))["rows"] == [{"one": 1}]


OWN_LOCKS = """
SELECT count(*) AS n FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND d.datname = current_database() AND (l.classid, l.objid) = (0, 1)
"""
"""The lock that the task before took; other databases of the server have locks of their own."""


async def test_what_a_task_sets_does_not_reach_the_next_one(caller: Caller) -> None:
    await good(caller, "SET application_name = 'mine'; CREATE TEMP TABLE t(a int); SELECT pg_advisory_lock(1)", pool=1)

    found = await good(caller, "SELECT current_setting('application_name') AS name, to_regclass('t') AS t", pool=1)
    locks = await good(caller, OWN_LOCKS, pool=1)

    assert found["rows"] == [{"name": "", "t": None}]
    assert locks["rows"] == [{"n": 0}]


async def test_a_cancelled_task_cancels_its_query_on_the_server(caller: Caller, observer: asyncpg.Connection) -> None:
    await good(caller, "CREATE TABLE t(a int)")
    task = asyncio.create_task(run(caller, "INSERT INTO t VALUES (1); SELECT pg_sleep(100) AS marked", pool=1))
    await wait_for_query(observer, "marked", 1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await wait_for_query(observer, "marked", 0)
    assert (await good(caller, "SELECT * FROM t", pool=1))["rows"] == []


async def test_a_timeout_cancels_the_query_and_may_be_retried(caller: Caller, observer: asyncpg.Connection) -> None:
    outcome = await run(caller, "CREATE TABLE t(a int); SELECT pg_sleep(100) AS marked", timeout=0.2)

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("db_timeout", True)
    await wait_for_query(observer, "marked", 0)


async def wait_for_query(observer: asyncpg.Connection, part: str, count: int) -> None:
    seen = f"(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%AS {part}')"
    again = "PERFORM pg_sleep(0.005); PERFORM pg_stat_clear_snapshot();"
    await observer.execute(f"DO $$ BEGIN LOOP EXIT WHEN {seen} = {count}; {again} END LOOP; END $$", timeout=30)


async def test_a_pool_opens_no_more_connections_than_it_may(caller: Caller, observer: asyncpg.Connection) -> None:
    query = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    counts = await asyncio.gather(
        *(good(caller, f"SELECT pg_sleep(0.01); {query}", pool={"size": 2}) for _ in range(8))
    )

    # The observer and at most one neighbour.
    assert max(data["rows"][0]["n"] for data in counts) == 2


@pytest.mark.parametrize(("pool", "size"), [(None, 8), (True, 8), ({}, 8), ({"max_size": 3}, 3), (2, 2)])
async def test_a_pool_has_the_size_that_is_asked_for(caller: Caller, pool: Any, size: int) -> None:
    assert (await find_target(caller.credentials, "pg", pool)).pool_size == size


async def test_a_server_that_is_away_is_a_retryable_problem_without_the_password(caller: Caller) -> None:
    literal = {"db_host": "127.0.0.1", "db_port": 1, "db_user": "u", "db_password": "hush", "db_name": "d"}
    problem = (await run(caller, "SELECT 1", auth=literal)).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("db_connection", True)
    assert "127.0.0.1:1/d" in problem.message
    assert "hush" not in repr(problem)


@pytest.mark.parametrize(
    "auth", ["unknown", {"type": "postgres"}, {"dsn": "postgresql://u:hu/sh@[oops/d"}, {"dsn": "hush://x"}]
)
async def test_a_credential_that_leads_nowhere_is_a_problem_of_auth(caller: Caller, auth: Any) -> None:
    problem = (await run(caller, "SELECT 1", auth=auth)).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("auth", False)
    assert "sh" not in problem.message.replace("should", "")


async def test_one_task_after_the_other_uses_the_same_session(caller: Caller) -> None:
    sessions = {(await good(caller, "SELECT pg_backend_pid() AS pid"))["rows"][0]["pid"] for _ in range(3)}

    assert len(sessions) == 1


async def test_a_session_that_nobody_needs_is_closed(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_IDLE_SECONDS", 0.01)
    gone = asyncio.Event()
    await good(caller, "SELECT 1 AS one")

    [pool] = caller.resources.kept.values()
    async with pool.connection() as connection:
        connection.add_termination_listener(lambda _: gone.set())
    await asyncio.wait_for(gone.wait(), 10)

    assert (await good(caller, "SELECT 1 AS one"))["rows"] == [{"one": 1}]


async def test_a_session_that_cannot_be_settled_is_not_lent_again(caller: Caller) -> None:
    await good(caller, "SELECT 1 AS one")
    [pool] = caller.resources.kept.values()

    # Cancelled once in its work and once more while that is being taken back.
    lent = asyncio.Event()

    async def work() -> None:
        async with pool.connection(restore=True) as connection:
            monitored.append(connection)
            await connection.execute("BEGIN; CREATE TEMP TABLE trace(id int)")
            lent.set()
            await asyncio.Event().wait()

    monitored: list[asyncpg.Connection] = []
    task = asyncio.create_task(work())
    await lent.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert monitored[0].is_closed()
    assert (await good(caller, "SELECT to_regclass('trace') AS found"))["rows"] == [{"found": None}]


async def test_a_script_is_run_as_it_stands(caller: Caller, tmp_path: Path) -> None:
    script = tmp_path / "load.sql"
    script.write_text("CREATE TABLE t(body text); INSERT INTO t VALUES ('{{ no.template }}'); SELECT * FROM t -- all")

    source = {"uri": script.as_uri(), "source": {"type": "file"}}
    outcome = await PostgresTool().run(caller.call(script=source))

    assert outcome.data["rows"] == [{"body": "{{ no.template }}"}]
    assert outcome.data["statement_count"] == 3


async def test_a_script_takes_parameters(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "one.sql").write_text("SELECT :n::int + 1 AS n")

    outcome = await PostgresTool().run(caller.call(script=str(tmp_path / "one.sql"), params={"n": 1}))

    assert outcome.data["rows"] == [{"n": 2}]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("/no/where.sql", "not_found", "there is no script /no/where.sql"),
        ({"uri": "x.sql", "source": {"auth": "gone"}}, "not_found", "there is no credential gone"),
        ({"source": {}}, "schema", "script takes a mapping"),
        ("http://127.0.0.1:1/x.sql", "connection", "cannot be fetched"),
    ],
)
async def test_a_script_that_cannot_be_had_is_a_problem(caller: Caller, script: Any, kind: str, words: str) -> None:
    outcome = await PostgresTool().run(caller.call(script=script))

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.source) == (kind, "postgres")
    assert words in outcome.error.message
    assert outcome.error.retryable == (kind == "connection")


async def test_an_empty_script_is_named_as_such(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "empty.sql").write_text("-- nothing\n")

    outcome = await PostgresTool().run(caller.call(script=str(tmp_path / "empty.sql")))

    assert outcome.error is not None
    assert outcome.error.message == "the postgres task's `script` has no statement in it"
