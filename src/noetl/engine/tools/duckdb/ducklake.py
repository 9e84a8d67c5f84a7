"""The `ducklake` tool: SQL goes in, and runs in DuckDB on the tables of a DuckLake catalog that many workers share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import duckdb

from noetl.engine.confinement.policy import refuse_hidden
from noetl.engine.tools.duckdb.databases import MEMORY, databases_of
from noetl.engine.tools.duckdb.secrets import load_extension
from noetl.engine.tools.duckdb.tables import tables_of
from noetl.engine.tools.duckdb.tool import run_statements, text_in
from noetl.engine.tools.duckdb.values import BadTask, problem_of, quoted
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.target import refuse_files
from noetl.errors import Unavailable

_SCHEME: Final = re.compile(r"(postgres|postgresql|sqlite|duckdb):(?!//)", re.IGNORECASE)
_OF_THIS_ACCOUNT: Final = re.compile(r"(^|[\s:])(passfile|service|servicefile)\s*=", re.IGNORECASE)
_EXTENSIONS: Final = {"postgres": "postgres", "sqlite": "sqlite"}
_FIELDS: Final = {
    "host": ("db_host", "host"),
    "port": ("db_port", "port"),
    "dbname": ("db_name", "database", "dbname"),
    "user": ("db_user", "user", "username"),
    "password": ("db_password", "password"),
}


class DucklakeTool:
    """Runs SQL on a catalog; `settings` are DuckDB's own, such as extension_directory."""

    kind: ClassVar[str] = "ducklake"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})

    async def run(self, call: Call) -> Outcome:
        """Run the statements and return the rows of the last one."""
        limits = [float(limit) for limit in (call.options.get("timeout"), call.timeout) if limit]
        try:
            text = text_in(call.options)
            async with asyncio.timeout(min(limits, default=None)):
                kind, address = await catalog_of(call)
                databases = await databases_of(call.resources, self._settings)
                async with databases.connection(MEMORY) as connection:
                    tables = await tables_of(call)

                    def work() -> dict[str, Any]:
                        attach(connection, kind, address, call.options)
                        return run_statements(connection, text, call.options, [], tables)

                    data = await databases.run(connection, work)
        except Exception as error:
            return Outcome(status="error", error=problem_of(error, self.kind))
        return Outcome(data=data)


async def catalog_of(call: Call) -> tuple[str, str]:
    """Return the kind of database a catalog is kept in, and its address there."""
    given = call.options.get("catalog_connection")
    if given:
        return _read(str(given))
    auth: Any = call.auth
    if isinstance(auth, Mapping) and isinstance(named := auth.get("credential", auth.get("key")), str):
        auth = named
    if isinstance(auth, str):
        auth = (await call.credentials.credential(auth)).data
    if not isinstance(auth, Mapping):
        raise BadTask("a ducklake task needs `catalog_connection`, or `auth` with a credential of type postgres")
    dsn = auth.get("dsn") or auth.get("url") or auth.get("connection_string")
    if dsn:
        return _read(str(dsn))
    parts = {name: next((auth[one] for one in names if auth.get(one)), None) for name, names in _FIELDS.items()}
    return "postgres", " ".join(f"{name}={_libpq(value)}" for name, value in parts.items() if value is not None)


def _read(given: str) -> tuple[str, str]:
    parts = urlsplit(given)
    if parts.scheme in ("postgres", "postgresql") and given.startswith(f"{parts.scheme}://"):
        known = {
            "host": parts.hostname,
            "port": parts.port,
            "dbname": parts.path.lstrip("/") or None,
            "user": parts.username,
            "password": parts.password,
        }
        given_apart = {name: unquote(str(value)) for name, value in known.items() if value is not None}
        every = {**given_apart, **dict(parse_qsl(parts.query))}
        refuse_files(every)
        return "postgres", " ".join(f"{name}={_libpq(value)}" for name, value in every.items())
    found = _SCHEME.match(given)
    if _OF_THIS_ACCOUNT.search(given):
        raise BadTask("the DuckLake catalog's connection may name no passfile and no service: give the password itself")
    if found is not None:
        return found[1].lower().replace("postgresql", "postgres"), given[found.end() :]
    return ("postgres" if "dbname=" in given or "host=" in given else "duckdb"), given


def _libpq(value: Any) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def attach(connection: duckdb.DuckDBPyConnection, kind: str, address: str, options: Mapping[str, Any]) -> None:
    """Make a catalog the place that names without a database are looked for in."""
    data = options.get("data_path")
    for place in (address if kind != "postgres" else None, data):
        if place and "://" not in str(place):
            refuse_hidden(str(place))
    for extension in ("ducklake", *([_EXTENSIONS[kind]] if kind in _EXTENSIONS else [])):
        load_extension(connection, extension)
    name = quoted(str(options.get("catalog_name") or "lake"))
    where = f"ducklake:{kind}:{address}" if kind != "duckdb" else f"ducklake:{address}"
    more = f" (DATA_PATH {_literal(str(data))})" if data else ""
    try:
        connection.execute(f"ATTACH {_literal(where)} AS {name}{more}")
    except duckdb.Error as error:
        # DuckDB's words may quote the address, and the password with it.
        if isinstance(error, duckdb.IOException):
            raise Unavailable("the database of the DuckLake catalog does not answer") from None
        raise BadTask(
            f"the DuckLake catalog cannot be attached ({type(error).__name__}): check its connection"
        ) from None
    connection.execute(f"USE {name}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
