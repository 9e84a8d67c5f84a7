"""The snowflake kind and the ends of transfers: the real connector against a stand-in of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.unit.engine.tools.io_calls import Caller
from tests.unit.engine.tools.snowflake.snowflake_stand_in import StandIn, snowflake_stand_in, text_of

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Credential
from noetl.engine.tools.snowflake.statements import bound, statements_in
from noetl.engine.tools.snowflake.tool import SnowflakeTool
from noetl.engine.tools.transfer.tool import TransferTool

tool = SnowflakeTool()
_TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, name STRING, amount NUMBER(12, 2), at TIMESTAMP_TZ, doc VARIANT, raw BINARY)"


@pytest.fixture
async def account(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[StandIn, Caller]]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with snowflake_stand_in() as (stand_in, login):
        known = {"sf": Credential("sf", "snowflake", login)}
        async with Caller("snowflake", "sf", known) as caller:
            yield stand_in, caller


async def done(caller: Caller, command: Any, **options: Any) -> dict[str, Any]:
    outcome = await tool.run(caller.call(command=command, **options))
    assert outcome.error is None, outcome.error
    data: dict[str, Any] = outcome.data
    return data


def error_of(outcome: Outcome) -> tuple[str, str | None, bool]:
    assert outcome.error is not None, outcome
    return outcome.error.kind, outcome.error.code, outcome.error.retryable


async def test_statements_run_in_one_session_and_each_has_its_result(account: tuple[StandIn, Caller]) -> None:
    server, caller = account
    values = "(1, 'a;b', 1234567890.25, '2024-01-01 02:00:00+02', '{\"a\": [1, \"x\"]}', NULL)"
    data = await done(
        caller,
        f"{_TABLE}; -- made; \nINSERT INTO t VALUES {values};\n// and then\nSELECT * FROM t WHERE id = :id;",
        params={"id": 1},
    )
    row = {
        "ID": 1,
        "NAME": "a;b",
        "AMOUNT": "1234567890.25",
        "AT": "2024-01-01T00:00:00+00:00",
        "DOC": {"a": [1, "x"]},
        "RAW": None,
    }
    assert data["rows"] == [row]
    assert (data["row_count"], data["columns"], data["statement_count"]) == (1, list(row), 3)
    assert data["command_1"] == {"status": "ok", "rows": [], "row_count": 1, "columns": []}
    assert data["command_2"] == {"status": "ok", "rows": [row], "row_count": 1, "columns": list(row)}
    assert len(server.logins) == 1
    login = server.logins[0]
    assert (login["LOGIN_NAME"], login["PASSWORD"], login["warehouse"]) == ("loader", "p4ss", "WH")
    assert login["SESSION_PARAMETERS"]["ABORT_DETACHED_QUERY"] is True
    assert not server.sessions


async def test_what_goes_wrong_has_its_kind(account: tuple[StandIn, Caller]) -> None:
    server, caller = account
    await done(caller, _TABLE)
    twice = await tool.run(caller.call(command="INSERT INTO t (id) VALUES (1); INSERT INTO t (id) VALUES (1)"))
    assert error_of(twice) == ("db_constraint", "22000", False)
    assert twice.data["status"] == "error"
    assert error_of(await tool.run(caller.call(command="SELECT * FROM nowhere"))) == ("schema", "42000", False)
    wrong = {**caller.credentials._known["sf"].data, "sf_password": "wrong"}
    refused = await tool.run(caller.call(auth=wrong, command="SELECT 1"))
    assert error_of(refused)[0] == "auth"
    assert "wrong" not in str(refused.error)
    for command in ("PUT file:///etc/passwd @~", "/* */ get @~/x file:///tmp", "-- nothing", None):
        assert error_of(await tool.run(caller.call(command=command)))[0] == "schema", command
    assert len(server.logins) == 4
    for lacking in ({"sf_account": "a"}, {"sf_account": "a", "sf_user": "u"}):
        assert error_of(await tool.run(caller.call(auth=lacking, command="SELECT 1")))[:2] == (
            "auth",
            "credential_invalid",
        )


async def test_a_key_pair_logs_in(account: tuple[StandIn, Caller]) -> None:
    server, caller = account
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    hidden = serialization.BestAvailableEncryption(b"phrase")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden).decode()
    login = {name: value for name, value in caller.credentials._known["sf"].data.items() if name != "sf_password"}
    auth = {**login, "sf_private_key": pem, "sf_private_key_passphrase": "phrase"}
    assert (await tool.run(caller.call(auth=auth, command="SELECT 1 AS n"))).data["rows"] == [{"N": 1}]
    assert server.logins[0]["AUTHENTICATOR"] == "SNOWFLAKE_JWT"
    claims = jwt.decode(server.logins[0]["TOKEN"], key.public_key(), algorithms=["RS256"])
    assert claims["sub"] == "ACME.LOADER"
    closed = await tool.run(caller.call(auth={**auth, "sf_private_key_passphrase": "other"}, command="SELECT 1"))
    assert error_of(closed)[:2] == ("auth", "credential_invalid")


async def test_cancelling_cancels_the_statement_there(account: tuple[StandIn, Caller]) -> None:
    server, caller = account
    running = asyncio.ensure_future(tool.run(caller.call(command="SELECT SYSTEM$WAIT(60)")))
    async with asyncio.timeout(30):
        await server.waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert server.cancelled.is_set()
    assert not server.sessions
    server.cancelled.clear()
    late = await tool.run(caller.call(command="SELECT SYSTEM$WAIT(60)", limit=1.5))
    assert error_of(late) == ("db_timeout", None, True)
    assert server.logins[1]["SESSION_PARAMETERS"]["STATEMENT_TIMEOUT_IN_SECONDS"] == 2


async def test_rows_go_into_snowflake_and_out_again(account: tuple[StandIn, Caller], tmp_path: Path) -> None:
    server, caller = account
    await done(caller, _TABLE)
    file = str(tmp_path / "x.duckdb")
    with duckdb.connect(file) as source:
        source.execute(
            "CREATE TABLE t AS SELECT i AS id, 'n' || i AS name, i * 1.25 AS amount, "
            "TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, '{\"a\":[1]}'::JSON AS doc, 'ab'::BLOB AS raw FROM range(1, 26) r(i)"
        )
        source.execute("CREATE TABLE back AS FROM t LIMIT 0")
    into = {"type": "snowflake", "table": "T"}
    transfer = TransferTool()
    first = await transfer.run(
        caller.call(source={"type": "duckdb", "database": file, "table": "t"}, target=into, chunk_size=10)
    )
    assert first.data == {"status": "ok", "rows_read": 25, "rows_written": 25, "chunks": 3}
    query = {"type": "duckdb", "database": file, "query": "SELECT 25 AS id, 'new' AS name UNION ALL SELECT 26, 'more'"}
    again = await transfer.run(caller.call(source=query, target={**into, "mode": "upsert", "key": "id"}))
    assert again.status == "ok", again
    taken = server.database.execute("SELECT id, name, amount, doc->>'$.a[0]', raw FROM t ORDER BY id").fetchall()
    assert len(taken) == 26
    assert str(taken[0][2]) == "1.25"
    assert taken[0][3:] == ("1", b"ab")
    assert [row[1] for row in taken[-2:]] == ["new", "more"]
    out = {"type": "snowflake", "query": "SELECT * FROM T WHERE id <= 25 ORDER BY id;"}
    back = await transfer.run(
        caller.call(
            source=out, target={"type": "duckdb", "database": file, "table": "back"}, mode="replace", chunk_size=7
        )
    )
    assert back.data == {"status": "ok", "rows_read": 25, "rows_written": 25, "chunks": 4}
    with duckdb.connect(file) as there:
        assert there.execute("SELECT * FROM back WHERE id < 25 EXCEPT SELECT * FROM t").fetchall() == []
    picked = {"database": file, "type": "duckdb", "table": "back", "mapping": {"id": "ID", "name": "name"}}
    some = await transfer.run(caller.call(source={"type": "snowflake", "table": "T"}, target=picked))
    assert some.data["rows_written"] == 26
    with duckdb.connect(file) as there:
        assert there.execute("SELECT count(*) FROM back WHERE id IS NULL").fetchone() == (0,)


async def test_a_transfer_into_snowflake_is_all_or_nothing(account: tuple[StandIn, Caller], tmp_path: Path) -> None:
    server, caller = account
    await done(caller, [_TABLE, "INSERT INTO t (id) VALUES (3)"])
    source = {"type": "duckdb", "database": str(tmp_path / "x.duckdb"), "query": "SELECT i AS id FROM range(5) r(i)"}
    failed = await TransferTool().run(
        caller.call(source=source, target={"type": "snowflake", "table": "t"}, chunk_size=2)
    )
    assert error_of(failed)[0] == "db_constraint"
    assert failed.data["rows_written"] == 0
    assert "COMMIT" not in server.statements
    unknown = await TransferTool().run(
        caller.call(source=source, target={"type": "snowflake", "table": "t", "mapping": {"colour": "id"}})
    )
    assert error_of(unknown)[:2] == ("schema", "transfer_invalid")


def test_statements_are_split_and_parameters_bound() -> None:
    assert statements_in("SELECT ';'; $$ a; b $$;\n-- c;\nSELECT 'it''s;'") == [
        "SELECT ';'",
        "$$ a; b $$",
        "-- c;\nSELECT 'it''s;'",
    ]
    assert bound("SELECT :a, v:b::int, ':a', %(a)s", {"a": 1}) == ("SELECT ?, v:b::int, ':a', ?", [1, 1])
    assert bound("SELECT $2, $1", ["x", [1]]) == ("SELECT ?, ?", ["[1]", "x"])
    assert bound("SELECT ?, ?", [1, None]) == ("SELECT ?, ?", [1, None])
    assert bound("SELECT %s, %s", [1, 2]) == ("SELECT ?, ?", [1, 2])
    assert text_of(b"ab") == "YWI="
