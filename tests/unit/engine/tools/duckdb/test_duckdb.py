"""The duckdb tool: results, types, files, secrets, problems and cancellation."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.tools.duckdb.secrets import Secret
from noetl.engine.tools.duckdb.tool import DuckdbTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Credential

_ENDLESS = "SELECT count(*) FROM range(1000000000000) a(x), range(1000) b(y) WHERE x % 7 = y"


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    credentials = {
        "lake": Credential("lake", "s3", {"key_id": "id", "secret": "hush"}),
        "pg": Credential("pg", "postgres", {"db_host": "h", "db_password": "hush"}),
        "token": Credential("token", "bearer", {"token": "hush"}),
    }
    async with Caller("duckdb", None, credentials) as caller:
        yield caller


async def run(caller: Caller, command: Any, **options: Any) -> Outcome:
    return await DuckdbTool().run(caller.call(command=command, **options))


async def good(caller: Caller, command: Any, **options: Any) -> Any:
    outcome = await run(caller, command, **options)
    assert outcome.error is None, outcome.error
    return outcome.data


async def test_the_last_statement_counts(caller: Caller) -> None:
    command = (
        "CREATE TABLE t(id int, name text); -- it's; a comment\nINSERT INTO t VALUES (1, 'a;b'), (2, NULL); FROM t;"
    )

    assert await good(caller, command) == {
        "status": "ok",
        "rows": [{"id": 1, "name": "a;b"}, {"id": 2, "name": None}],
        "row_count": 2,
        "columns": ["id", "name"],
    }


async def test_a_result_tells_the_types_that_json_cannot(caller: Caller) -> None:
    query = (
        "SELECT 1.5::DECIMAL(12,2) AS price, TIMESTAMPTZ '2026-01-02 03:04:05+02' AS at, DATE '2026-01-02' AS day, "
        "'x'::BLOB AS raw, [1.5::DECIMAL(4,1)] AS parts, 2::DOUBLE AS whole, TIMESTAMP '2026-01-02' AS local, 1 AS n, "
        "INTERVAL 1 DAY AS span, 'x' AS text"
    )
    types = {
        "price": "decimal(12,2)", "at": "timestamp", "day": "date", "raw": "binary", "parts": "array<decimal(4,1)>",
        "whole": "double", "local": "timestamp_ntz",
    }  # fmt: skip
    assert (await good(caller, query))["types"] == types


async def test_changes_are_counted_and_may_return_rows(caller: Caller) -> None:
    made = "CREATE TABLE t(id int, seen timestamptz)"
    insert = "INSERT INTO t VALUES (1, '2024-01-01 00:00:00+00'), (2, NULL)"

    assert await good(caller, [made, insert]) == {"status": "ok", "rows": [], "row_count": 2, "columns": []}
    assert (await good(caller, made, database=":memory:"))["row_count"] == 0
    returned = await good(caller, [made, f"{insert} RETURNING id"], database=":memory:")
    assert returned["rows"] == [{"id": 1}, {"id": 2}]


async def test_a_change_whose_result_cannot_be_given_is_taken_back(caller: Caller, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    await good(caller, "CREATE TABLE t(id int, seen timestamptz)", database=file)
    insert = "INSERT INTO t VALUES (1, '2024-01-01 00:00:00+00') RETURNING id, seen"

    problem = (await run(caller, insert, database=file)).error
    assert problem is not None
    assert (problem.kind, "cast it to text" in problem.message) == ("schema", True)
    assert (await good(caller, "FROM t", database=file))["rows"] == []
    assert (await good(caller, f"SET TimeZone = 'UTC'; {insert}::text AS seen", database=file))["rows"] == [
        {"id": 1, "seen": "2024-01-01 00:00:00+00"}
    ]
    assert (await good(caller, "FROM t", database=file))["row_count"] == 1


_FORMS: list[tuple[str, Any]] = [
    ("timestamptz '2024-01-01 00:00:00.5+02'", "2023-12-31T22:00:00.5+00:00"),
    ("[timestamptz '2024-01-01 00:00:00+00']", ["2024-01-01T00:00:00+00:00"]),
    ("{'at': timestamptz '2024-01-01 00:00:00+00', 'n': 1}", {"at": "2024-01-01T00:00:00+00:00", "n": 1}),
    ("'2024-01-01 00:00:00+00'", "2024-01-01 00:00:00+00"),
    ("timestamp '2024-01-01 00:00:00'", "2024-01-01T00:00:00"),
    ("timestamp 'infinity'", "infinity"),
    ("date '-infinity'", "-infinity"),
    ("date '2024-01-01'", "2024-01-01"),
    ("time '01:02:03'", "01:02:03"),
    ("interval '1 month 2 days'", "1 month 2 days"),
    ("uuid '0b7e4e0c-3f5c-4d47-9f6e-8f3d0a2b1c4d'", "0b7e4e0c-3f5c-4d47-9f6e-8f3d0a2b1c4d"),
    ("1.50::decimal(5, 2)", "1.50"),
    ("170141183460469231731687303715884105727::hugeint", "170141183460469231731687303715884105727"),
    ("'nan'::double", "NaN"),
    ("'-inf'::double", "-Infinity"),
    ("1.5::double", 1.5),
    ("'ab'::blob", "YWI="),
    ("[1, NULL]", [1, None]),
    ("map {1: 'x'}", {"1": "x"}),
    ("'{\"a\": 1}'::json", '{"a": 1}'),
    ("true", True),
    ("NULL", None),
]


async def test_every_type_has_a_plain_form(caller: Caller) -> None:
    columns = ", ".join(f"{expression} AS v{number}" for number, (expression, _) in enumerate(_FORMS))

    (row,) = (await good(caller, f"SET TimeZone = 'UTC'; SELECT {columns}"))["rows"]

    assert list(zip((form for form, _ in _FORMS), row.values(), strict=True)) == _FORMS


async def test_parameters_bind_by_number_and_name(caller: Caller) -> None:
    assert (await good(caller, "SET threads = 1; SELECT $1 + $2 AS n", params=[1, 2]))["rows"] == [{"n": 3}]
    assert (await good(caller, "SELECT $a AS n, $b AS at", params={"a": "x", "b": None, "c": 1}))["rows"] == [
        {"n": "x", "at": None}
    ]
    missing = (await run(caller, "SELECT $a", params={})).error
    assert missing is not None
    assert missing.message.endswith("no value for a")


async def test_memory_is_fresh_and_a_file_lasts(caller: Caller, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    for database in (":memory:", file):
        await good(caller, "CREATE TABLE t AS SELECT 1 AS a", database=database)

    forgotten = (await run(caller, "FROM t", database=":memory:")).error
    assert forgotten is not None
    assert forgotten.kind == "schema"
    assert (await good(caller, "FROM t", database=file))["rows"] == [{"a": 1}]


async def test_calls_that_name_no_database_share_that_of_their_execution(caller: Caller) -> None:
    await good(caller, "CREATE TABLE t(a int); CREATE TEMP TABLE own AS SELECT 1")
    await asyncio.gather(*(good(caller, f"INSERT INTO t VALUES ({number})") for number in range(8)))

    assert (await good(caller, "SELECT count(*) AS n FROM t"))["rows"] == [{"n": 8}]
    for command, options in (("FROM t", {"execution_id": 2}), ("FROM own", {}), ("FROM t", {"database": ":memory:"})):
        problem = (await run(caller, command, **options)).error
        assert problem is not None
        assert (problem.kind, "does not exist" in problem.message) == ("schema", True)
        assert ("name a `database` that all of them reach" in problem.message) is ("database" not in options)


async def test_calls_to_one_file_take_turns_and_leave_it_free(caller: Caller, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    await good(caller, "CREATE TABLE t(a int)", database=file)

    await asyncio.gather(
        *(good(caller, f"SET threads = 1; INSERT INTO t VALUES ({number})", database=file) for number in range(8))
    )

    counted = "import duckdb, sys; print(duckdb.connect(sys.argv[1]).execute('SELECT count(*) FROM t').fetchone()[0])"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", counted, file], capture_output=True, check=True
    )
    assert done.stdout.strip() == b"8"


async def test_a_file_another_process_has_open_may_be_free_later(caller: Caller, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    holding = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", holding, file, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()

    problem = (await run(caller, "SELECT 1", database=file)).error
    await process.communicate(b"")

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("db_connection", True)
    assert (await good(caller, "SELECT 1 AS a", database=file))["row_count"] == 1


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("SELEC 1", "schema"),
        ("FROM nowhere", "schema"),
        ("SELECT 'x'::int", "transform"),
        ("CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t VALUES (1), (1)", "db_constraint"),
        ("FROM read_csv('/does/not/exist.csv')", "storage_access"),
        ("-- nothing", "schema"),
        (None, "schema"),
    ],
)  # fmt: skip
async def test_a_problem_has_a_kind_a_policy_can_decide_on(caller: Caller, command: Any, kind: str) -> None:
    problem = (await run(caller, command)).error

    assert problem is not None
    assert (problem.kind, problem.retryable, problem.source) == (kind, False, "duckdb")


async def test_a_cancelled_task_interrupts_its_query(caller: Caller, tmp_path: Path) -> None:
    file = str(tmp_path / "data.duckdb")
    started = tmp_path / "started.csv"
    task = asyncio.create_task(run(caller, f"COPY (SELECT 1) TO '{started}'; {_ENDLESS}", database=file))
    await asyncio.to_thread(_wait_for, started)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await good(caller, "SELECT 1 AS a", database=file))["row_count"] == 1


def _wait_for(path: Path) -> None:
    waiting = threading.Event()
    while not path.exists():
        waiting.wait(0.005)


async def test_a_timeout_interrupts_the_query_and_may_be_retried(caller: Caller) -> None:
    problem = (await run(caller, _ENDLESS, timeout=0.1)).error

    assert problem is not None
    assert (problem.kind, problem.retryable) == ("db_timeout", True)


@pytest.mark.parametrize("auth", ["lake", {"store": "lake"}, {"db": {"type": "postgres", "credential": "pg"}}, "pg"])
async def test_an_extension_that_is_not_there_is_named(caller: Caller, tmp_path: Path, auth: Any) -> None:
    tool = DuckdbTool({"extension_directory": str(tmp_path), "custom_extension_repository": str(tmp_path / "none")})

    problem = (await tool.run(caller.call(command="SELECT 1", auth=auth))).error

    assert problem is not None
    assert problem.kind == "schema"
    assert "extension" in problem.message
    assert "hush" not in repr(problem)


async def test_a_credential_duckdb_has_no_use_for_is_refused(caller: Caller) -> None:
    problem = (await run(caller, "SELECT 1", auth="token")).error

    assert problem is not None
    assert "bearer" in problem.message
    assert (await good(caller, "SELECT 1 AS a", auth="token", auto_secrets=False))["row_count"] == 1


def test_the_statement_of_a_secret_is_one_duckdb_reads() -> None:
    secret = Secret('my "lake"', "s3", {"key_id": "it's", "secret": "hush", "use_ssl": False, "scope": "s3://b"})
    (statement,) = duckdb.connect().extract_statements(secret.create())

    assert statement.type == duckdb.StatementType.CREATE
    assert "hush" not in repr(secret)
    assert secret.create() == (
        'CREATE OR REPLACE TEMPORARY SECRET "my ""lake""" '
        "(TYPE s3, KEY_ID 'it''s', SECRET 'hush', USE_SSL false, SCOPE 's3://b')"
    )


async def test_a_task_that_must_write_to_a_cloud_has_to_name_one(caller: Caller) -> None:
    problem = (await run(caller, "COPY (SELECT 1) TO 'local.csv'", require_cloud_output=True)).error

    assert problem is not None
    assert "require_cloud_output" in problem.message
