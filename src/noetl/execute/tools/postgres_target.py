"""Finds the database a task means and the worker's pool of connections to it. Passwords are never shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import asyncpg

from noetl.execute.tools.json_text import read_json, write_json
from noetl.execute.tools.port import Call, Credentials, Resources
from noetl.execute.tools.postgres_problems import BadTarget
from noetl.execute.tools.postgres_values import interval

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

DEFAULT_POOL = 8
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 10.0
_CACHED_STATEMENTS = 200
_FIELDS = {
    "host": ("db_host", "host"),
    "port": ("db_port", "port"),
    "user": ("db_user", "user", "username"),
    "password": ("db_password", "password"),
    "database": ("db_name", "database", "dbname"),
}
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl")
_RESTORE = (
    "SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; "
    "SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)


@dataclass(frozen=True)
class Target:
    """One database as one user."""

    place: str
    """How messages call it: user, host and database."""
    settings: tuple[tuple[str, Any], ...] = field(repr=False)
    """What the driver connects with."""
    pool_size: int
    cached_statements: int = _CACHED_STATEMENTS

    async def connect(self, *, json_as_text: bool = False) -> asyncpg.Connection:
        """Open a connection of the caller's own, for work that would keep one of the pool's too long."""
        with _readable():
            connection: asyncpg.Connection = await asyncpg.connect(
                **dict(self.settings), timeout=_CONNECT_SECONDS, statement_cache_size=self.cached_statements
            )
        await prepare_types(connection, json_as_text=json_as_text)
        return connection


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except ValueError:
        # The driver's words may quote a part of the password.
        raise BadTarget("the postgres credential's dsn or settings cannot be read") from None


async def find_target(credentials: Credentials, auth: Any, pool: Any = None) -> Target:
    """Return the database that an alias, a mapping with one alias, or a literal mapping names."""
    data = await _data(credentials, auth)
    tls = {name: str(data[name]) for name in _TLS if data.get(name)}
    settings: dict[str, Any] = {}
    for name, spellings in _FIELDS.items():
        value = next((data[spelling] for spelling in spellings if data.get(spelling) not in (None, "")), None)
        if value is not None:
            settings[name] = value if name != "port" else _number(value, "port")
    dsn = data.get("dsn") or data.get("url") or data.get("connection_string")
    if dsn is None and "host" not in settings:
        raise BadTarget("the postgres credential names no database: it needs db_host, db_user, db_password and db_name")
    settings["dsn"] = str(dsn) if dsn else "postgresql://?" + urlencode(tls)
    place = _place(settings) if not dsn else _dsn_place(str(dsn))
    size = pool.get("size", pool.get("max_size")) if isinstance(pool, Mapping) else pool
    size = size if size is not None else data.get("pool_size", DEFAULT_POOL)
    cached = _number(data.get("statement_cache_size", _CACHED_STATEMENTS), "statement_cache_size")
    return Target(place, tuple(sorted(settings.items())), max(1, _number(size, "pool size")), cached)


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


class Pool:
    """The worker's connections to one target, and what it learned of the statements sent there."""

    def __init__(self, target: Target, pool: asyncpg.Pool) -> None:
        self.place = target.place
        self._pool = pool
        self._met: dict[str, None] = {}
        self.bound: dict[str, Any] = {}
        """Statements with parameters, as they are sent."""

    @asynccontextmanager
    async def connection(self, *, restore: bool = False) -> AsyncIterator[Connection]:
        """Lend a connection; `restore` takes the session back to how it began before another gets it."""
        with _readable():
            connection = await self._pool.acquire()
        try:
            yield connection
        except BaseException:
            # Whether the transaction is still open is not known while a query is being cancelled.
            await _settle(connection, roll_back=True, restore=restore)
            raise
        else:
            await _settle(connection, roll_back=connection.is_in_transaction(), restore=restore)
        finally:
            await self._pool.release(connection)

    def met_before(self, text: str) -> bool:
        """Say whether this text came before, so that it is worth preparing; most texts with a row's values come once."""
        if text in self._met:
            return True
        if len(self._met) >= 1000:
            self._met.clear()
        self._met[text] = None
        return False

    async def aclose(self) -> None:
        """Close all connections; one that does not come to an end is cut off."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


async def pool_for(resources: Resources, target: Target) -> Pool:
    """Return the worker's pool for a target."""

    async def make() -> Pool:
        pool = await asyncpg.create_pool(
            **dict(target.settings),
            min_size=0,
            max_size=target.pool_size,
            init=prepare_types,
            reset=_keep,
            timeout=_CONNECT_SECONDS,
            statement_cache_size=target.cached_statements,
        )
        return Pool(target, pool)

    pool: Pool = await resources.get(("postgres", target), make)
    return pool


async def pool_of(call: Call) -> Pool:
    """Return the worker's pool for the database a call names."""
    target = await find_target(call.credentials, call.auth, call.options.get("pool"))
    return await pool_for(call.resources, target)


async def prepare_types(connection: Connection, *, json_as_text: bool = False) -> None:
    """Teach a new connection the types it would lose something of."""
    # In one transaction, because a pooler in between may otherwise answer each query from another session.
    async with connection.transaction():
        for name, head in () if json_as_text else (("json", b""), ("jsonb", b"\x01")):
            await connection.set_type_codec(
                name, schema="pg_catalog", format="binary", encoder=_writer(head), decoder=_reader(head)
            )
        await connection.set_type_codec(
            "interval", schema="pg_catalog", format="tuple", encoder=lambda value: value, decoder=interval
        )


def _writer(head: bytes) -> Callable[[Any], bytes]:
    return lambda value: head + write_json(value)


def _reader(head: bytes) -> Callable[[bytes], Any]:
    return lambda data: read_json(data[len(head) :])


async def _keep(_: object) -> None:
    """Skip the pool's own restoring: a round trip that few statements need."""


async def _settle(connection: Connection, *, roll_back: bool, restore: bool) -> None:
    if connection.is_closed() or not (restore or roll_back):
        return
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            if roll_back:
                await connection.execute("ROLLBACK")
            if restore:
                await connection.execute(_RESTORE)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
