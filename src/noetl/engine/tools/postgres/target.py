"""Finds the database a task means and connects to it. Passwords are never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from noetl.engine.confinement.policy import refuse_hidden
from noetl.engine.tools.json_text import read_json, write_json
from noetl.engine.tools.port import Credentials
from noetl.engine.tools.postgres import calendar
from noetl.engine.tools.postgres.problems import BadTarget
from noetl.engine.tools.postgres.values import base64_text, log_place, row_place, snapshot

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

DEFAULT_POOL = 8
CONNECT_SECONDS = 10.0
_CACHED_STATEMENTS = 200
_FIELDS = {
    "host": ("db_host", "host"),
    "port": ("db_port", "port"),
    "user": ("db_user", "user", "username"),
    "password": ("db_password", "password"),
    "database": ("db_name", "database", "dbname"),
}
_TUPLES: Mapping[str, Callable[[Any], str]] = {
    "date": calendar.day,
    "timestamp": calendar.moment,
    "timestamptz": calendar.moment_in_utc,
    "time": calendar.time,
    "timetz": calendar.time_with_zone,
    "interval": calendar.interval,
}
_BYTES: Mapping[str, Callable[[bytes], str]] = {
    "bytea": base64_text,
    "pg_lsn": log_place,
    "tid": row_place,
    "pg_snapshot": snapshot,
    "txid_snapshot": snapshot,
}
_SERVICES = ("service", "servicefile")
_FILES = ("passfile", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl")


@dataclass(frozen=True)
class Target:
    """One database as one user."""

    place: str
    """How messages call it: user, host and database."""
    settings: tuple[tuple[str, Any], ...] = field(repr=False)
    """What the driver connects with."""
    pool_size: int
    cached_statements: int = _CACHED_STATEMENTS

    async def connect_as_driver(self) -> asyncpg.Connection:
        """Open a connection that gives and takes values as the driver has them."""
        with readable_settings():
            connection: asyncpg.Connection = await asyncpg.connect(
                **dict(self.settings), timeout=CONNECT_SECONDS, statement_cache_size=self.cached_statements
            )
        return connection

    async def connect(self, *, json_as_text: bool = False) -> asyncpg.Connection:
        """Open a connection of the caller's own, for work that would keep one of the pool's too long."""
        connection = await self.connect_as_driver()
        try:
            await prepare_types(connection, json_as_text=json_as_text)
        except BaseException:
            connection.terminate()
            raise
        return connection


@contextmanager
def readable_settings() -> Iterator[None]:
    """Say in words of our own that a credential makes no sense to the driver."""
    try:
        yield
    except ValueError:
        # The driver's words may quote a part of the password.
        raise BadTarget("the postgres credential's dsn or settings cannot be read") from None


async def find_target(credentials: Credentials, auth: Any, pool: Any = None) -> Target:
    """Return the database that an alias, a mapping with one alias, or a literal mapping names."""
    data = await _data(credentials, auth)
    key = (id(data), repr(pool))
    known = _TARGETS.get(key)
    # A credential that is read anew is another object, so what was made of the old one is not used for it.
    if known is None or known[0] is not data:
        if len(_TARGETS) >= _MOST_TARGETS:
            _TARGETS.clear()
        known = _TARGETS[key] = (data, _target(data, pool))
    return known[1]


_MOST_TARGETS = 256
_TARGETS: dict[tuple[int, str], tuple[Mapping[str, Any], Target]] = {}


def _target(data: Mapping[str, Any], pool: Any) -> Target:
    tls = {name: str(data[name]) for name in _TLS if data.get(name)}
    settings: dict[str, Any] = {}
    for name, spellings in _FIELDS.items():
        value = next((data[spelling] for spelling in spellings if data.get(spelling) not in (None, "")), None)
        if value is not None:
            settings[name] = value if name != "port" else _number(value, "port")
    dsn = data.get("dsn") or data.get("url") or data.get("connection_string")
    if dsn is None and "host" not in settings:
        raise BadTarget("the postgres credential names no database: it needs db_host, db_user, db_password and db_name")
    for given in (tls, _dsn_fields(str(dsn or ""))):
        refuse_files(given)
    settings["dsn"] = str(dsn) if dsn else "postgresql://?" + urlencode(tls)
    place = _place(settings) if not dsn else _dsn_place(str(dsn))
    size = pool.get("size", pool.get("max_size")) if isinstance(pool, Mapping) else pool
    if size is None or isinstance(size, bool):  # a pool there is in any case
        size = data.get("pool_size", DEFAULT_POOL)
    cached = _number(data.get("statement_cache_size", _CACHED_STATEMENTS), "statement_cache_size")
    return Target(place, tuple(sorted(settings.items())), max(1, _number(size, "pool size")), cached)


def _dsn_fields(dsn: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(urlsplit(dsn).query))
    except ValueError:
        raise BadTarget("the postgres credential's dsn cannot be read") from None


def refuse_files(given: Mapping[str, str]) -> None:
    """Refuse parameters of a connection that would make this process read passwords, or files that are hidden from tasks."""
    for name in _SERVICES:
        if name in given:
            # Such a file may name any other.
            raise BadTarget(f"the postgres credential may not name a {name}: give the connection itself")
    for name in _FILES:
        if given.get(name):
            refuse_hidden(given[name])


async def _data(credentials: Credentials, auth: Any) -> Mapping[str, Any]:
    while isinstance(auth, Mapping) and not _is_literal(auth):
        named = auth.get("credential", auth.get("key"))
        if named is None and len(auth) == 1:
            named = next(iter(auth.values()))
        if not isinstance(named, str | Mapping):
            raise BadTarget("the postgres task's `auth` has to name one credential")
        auth = named
    if isinstance(auth, Mapping):
        return auth
    if not isinstance(auth, str) or not auth:
        raise BadTarget("a postgres task needs `auth`: the name of a credential of type postgres")
    return (await credentials.credential(auth)).data


def _is_literal(auth: Mapping[str, Any]) -> bool:
    return any(name in auth for name in ("dsn", "url", "connection_string", "db_host", "host"))


def _number(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadTarget(f"the {name} of the postgres credential is no number") from None


def _place(settings: Mapping[str, Any]) -> str:
    host, port = settings.get("host", "localhost"), settings.get("port", 5432)
    return f"PostgreSQL {host}:{port}/{settings.get('database', '')}"


def _dsn_place(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        # A password with a slash in it would show as a part of the path.
        path = parts.path if "@" not in parts.path and not parts.fragment else ""
        return f"PostgreSQL {parts.hostname or 'localhost'}:{parts.port or 5432}{path}"
    except ValueError:
        return "PostgreSQL"


async def prepare_types(connection: Connection, *, json_as_text: bool = False) -> None:
    """Teach a new connection the types it would lose something of."""
    # In one transaction, because a pooler in between may otherwise answer each query from another session.
    async with connection.transaction():
        for name, head in () if json_as_text else (("json", b""), ("jsonb", b"\x01")):
            await connection.set_type_codec(
                name, schema="pg_catalog", format="binary", encoder=_writer(head), decoder=_reader(head)
            )
        for name, decoder in _TUPLES.items():
            await connection.set_type_codec(
                name, schema="pg_catalog", format="tuple", encoder=lambda value: value, decoder=decoder
            )
        for name, reader in _BYTES.items():
            await connection.set_type_codec(
                name, schema="pg_catalog", format="binary", encoder=lambda value: value, decoder=reader
            )


def _writer(head: bytes) -> Callable[[Any], bytes]:
    return lambda value: head + write_json(value)


def _reader(head: bytes) -> Callable[[bytes], Any]:
    return lambda data: read_json(data[len(head) :])
