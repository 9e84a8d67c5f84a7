"""A stand-in for the part of Snowflake's API that its connector uses; SQL is translated for DuckDB and run there."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from aiohttp import web
from aiohttp.test_utils import TestServer

_TYPES = {
    "INTEGER": "fixed", "BIGINT": "fixed", "DECIMAL": "fixed", "HUGEINT": "fixed", "DOUBLE": "real", "VARCHAR": "text",
    "BOOLEAN": "boolean", "BLOB": "binary", "JSON": "variant", "DATE": "date", "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMP WITH TIME ZONE": "timestamp_tz",
}  # fmt: skip
_DESCRIBED = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMP_TZ(9)", "JSON": "VARIANT", "BLOB": "BINARY(8388608)"}


class StandIn:
    """One account and the requests it saw."""

    def __init__(self) -> None:
        self.database = duckdb.connect()
        self.logins: list[dict[str, Any]] = []
        self.statements: list[str] = []
        self.sessions: set[str] = set()
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def login(self, request: web.Request) -> web.Response:
        body = (await _body(request))["data"]
        self.logins.append({**body, **request.query})
        if body.get("PASSWORD") == "wrong":
            return _failure("390100", "Incorrect username or password was specified.", state="08001")
        session = {"databaseName": "DB", "schemaName": "PUBLIC", "warehouseName": "WH", "roleName": "R"}
        self.sessions.add("t-1")
        data = {"token": "t-1", "masterToken": "m-1", "sessionId": 77, "parameters": [], "sessionInfo": session}
        return web.json_response({"success": True, "code": None, "message": None, "data": data})

    async def end(self, request: web.Request) -> web.Response:
        self.sessions.discard("t-1")
        with suppress(duckdb.TransactionException):
            self.database.execute("ROLLBACK")
        return web.json_response({"success": True, "data": None})

    async def query(self, request: web.Request) -> web.Response:
        body = await _body(request)
        text = body["sqlText"]
        bindings = body.get("bindings") or {}
        values = [bindings[str(place)]["value"] for place in range(1, len(bindings) + 1)]
        self.statements.append(text)
        if "SYSTEM$CANCEL_ALL_QUERIES" in text:
            assert values == ["77"]
            self.cancelled.set()
            return self._answer([("x", "VARCHAR")], [("ok",)])
        if "SYSTEM$WAIT" in text:
            self.waiting.set()
            await self.cancelled.wait()
            return _failure("000604", "SQL execution canceled", state="57014")
        try:
            return self._run(text, values)
        except duckdb.ConstraintException as error:
            return _failure("100072", str(error), state="22000")
        except Exception as error:  # another answer would be asked for again and again
            return _failure("001003", f"SQL compilation error: {error}", state="42000")

    def _run(self, text: str, values: list[Any]) -> web.Response:
        if text.startswith("DESCRIBE TABLE "):
            found = self.database.execute(f"DESCRIBE {text.split()[-1]}").fetchall()
            rows = [(name.upper(), _DESCRIBED.get(kind, kind)) for name, kind, *_ in found]
            return self._answer([("name", "VARCHAR"), ("type", "VARCHAR")], rows)
        sent, *_ = sqlglot.transpile(text.replace("VARIANT", "JSON"), read="snowflake", write="duckdb")
        done = self.database.execute(sent, values)
        columns = [(name, str(kind)) for name, kind, *_ in done.description or ()]
        found = done.fetchall()
        if columns and columns[0][0] == "Count":
            columns = [("number of rows inserted", "BIGINT")]
            return self._answer(columns, found, kind=12544)
        if not columns or not isinstance(sqlglot.parse(text, read="snowflake")[0], sqlglot.exp.Query):
            return self._answer([("status", "VARCHAR")], [("Statement executed successfully.",)])
        return self._answer(columns, found)

    def _answer(self, columns: list[tuple[str, str]], rows: list[Any], kind: int = 4096) -> web.Response:
        types = []
        for name, full in columns:
            word, _, rest = full.partition("(")
            scale = int(rest.rstrip(")").split(",")[1]) if word == "DECIMAL" else 0
            known = {"name": name.upper() if name.islower() and "number of" not in name else name, "nullable": True}
            types.append(
                {**known, "type": _TYPES[word], "precision": 38, "scale": scale, "length": 100, "byteLength": 100}
            )
        cells = [[_cell(value, column["type"]) for value, column in zip(row, types, strict=True)] for row in rows]
        data = {
            "rowtype": types, "rowset": cells, "total": len(rows), "returned": len(rows), "queryId": "q-1",
            "queryResultFormat": "json", "statementTypeId": kind, "parameters": [], "finalDatabaseName": "DB",
        }  # fmt: skip
        return web.json_response({"success": True, "code": None, "message": None, "data": data})


def _cell(value: Any, kind: str) -> str | None:
    if value is None:
        return None
    if kind == "boolean":
        return "1" if value else "0"
    if kind == "binary":
        return bytes(value).hex()
    if kind.startswith("timestamp"):
        seconds = f"{Decimal(str(value.timestamp())):.9f}"
        return f"{seconds} 1560" if kind == "timestamp_tz" else seconds
    return str(value)


async def _body(request: web.Request) -> dict[str, Any]:
    data = await request.read()
    return dict(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))


def _failure(code: str, message: str, *, state: str) -> web.Response:
    data = {"sqlState": state, "queryId": "q-1", "errorCode": code}
    return web.json_response({"success": False, "code": code, "message": message, "data": data})


@asynccontextmanager
async def snowflake_stand_in() -> AsyncIterator[tuple[StandIn, dict[str, Any]]]:
    """Run one and tell the credential for it."""
    stand_in = StandIn()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/session/v1/login-request", stand_in.login)
    app.router.add_post("/session", stand_in.end)
    app.router.add_post("/queries/v1/query-request", stand_in.query)
    server = TestServer(app, shutdown_timeout=0)
    await server.start_server()
    login = {"sf_account": "acme", "sf_user": "loader", "sf_password": "p4ss", "sf_warehouse": "WH"}
    try:
        yield stand_in, {**login, "sf_host": "127.0.0.1", "sf_port": str(server.port), "sf_protocol": "http"}
    finally:
        await server.close()
        stand_in.database.close()


def text_of(data: bytes) -> str:
    """Return bytes as results tell them."""
    return base64.b64encode(data).decode()
