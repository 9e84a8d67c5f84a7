"""Connections to PostgreSQL: one pool per database role, and transactions bound to one tenant and organization.

A connection asks the server only once per process what its built-in types are; the driver would ask each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Literal, NamedTuple

import asyncpg

from noetl.errors import Denied, NoetlError, Unavailable, Unsupported
from noetl.kernel.ledger.postgres.kept_connections import KeptConnections
from noetl.model.stream import Scope

_FIRST_OF_OTHERS: Final = 16384
"""Numbers below this one are given to types when PostgreSQL itself is made."""

_known: dict[frozenset[int], list[asyncpg.Record]] = {}


class _Nothing(NamedTuple):
    """Stands for the statement that was not needed; one with a name leaves the caller's own statement alone."""

    name: str = "known"


class KnowingConnection(asyncpg.Connection):
    """A connection of the driver that remembers built-in types for all others."""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        wanted = frozenset(typeoids)
        if (found := _known.get(wanted)) is not None:
            return found, _Nothing()
        types, statement = await super()._introspect_types(wanted, timeout)  # type: ignore[misc]  # the stubs lack it
        if all(one["oid"] < _FIRST_OF_OTHERS for one in types):
            _known[wanted] = types
        return types, statement


Role = Literal["runtime", "projector", "retention", "reaper", "operator", "relay", "materializer"]
Connection = asyncpg.pool.PoolConnectionProxy
# The driver tells with a traceback that it could not restore an idle connection; whoever needs one says it in a line.
logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
OLDEST_SERVER = 15
_CONNECT_SECONDS = 10
_CLOSE_SECONDS = 15

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # Between the server's last word and the closing of the socket the driver is in a state of its own.
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    # Its disk or memory is full, or it has as many connections as it may.
    asyncpg.InsufficientResourcesError,
    # It follows another server, or its operator stopped its writing: that passes, and no work is at fault.
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    ConnectionError,
    TimeoutError,
    OSError,
)
"""What the driver raises when the server is away, cut us off or has no room: the same call may succeed later."""


class Database:
    """The pools of one database. `as_roles` logs in as each role; otherwise one login switches to it.

    With `only`, whatever is asked for is done in the rights of that role, and the login needs no other.
    """

    def __init__(
        self,
        url: str,
        *,
        as_roles: bool = False,
        pool_min: int = 0,
        only: Role | None = None,
        pool_max: int = 10,
        idle_in_transaction_seconds: float = 5.0,
    ) -> None:
        self.url = url
        self._as_roles = as_roles
        self._pool_min = pool_min
        self._only = only
        self._pool_max = pool_max
        self._idle_seconds = idle_in_transaction_seconds
        self._pools: dict[Role, asyncpg.Pool] = {}
        self._kept: KeptConnections | None = None
        self._opening = asyncio.Lock()

    async def pool(self, role: Role = "runtime") -> asyncpg.Pool:
        """Return the pool of a role, opened on first use."""
        role = self._only or role
        found = self._pools.get(role)
        if found is not None:
            return found
        async with self._opening:
            if role not in self._pools:
                self._pools[role] = await self._open(role)
            return self._pools[role]

    def in_use(self) -> int:
        """Return how many connections of the pools are at work now."""
        idle = 0 if self._kept is None else self._kept.idle
        return sum(pool.get_size() - pool.get_idle_size() for pool in self._pools.values()) - idle

    def most(self) -> int:
        """Return how many connections the pools opened so far may hold."""
        return self._pool_max * max(1, len(self._pools))

    async def kept(self) -> KeptConnections:
        """Return the connections that writers keep between statements, each its own transaction."""
        if self._kept is None:
            pool = await self.pool()
            self._kept = self._kept or KeptConnections(pool)
        return self._kept

    async def give_back(self) -> None:
        """Let go of the connections that writers kept."""
        if self._kept is not None:
            await self._kept.close()

    async def connect(self, role: Role = "runtime") -> asyncpg.Connection:
        """Open a connection outside the pools, for listening or for holding a session lock."""
        role = self._only or role
        with translated(), admitted(role):
            return await asyncpg.connect(
                self.url,
                user=self._user(role),
                server_settings=self._session(role),
                timeout=_CONNECT_SECONDS,
                connection_class=KnowingConnection,
            )

    async def close(self) -> None:
        """Close all pools, waiting for what is under way; a connection that does not come to an end is cut off."""
        await self.give_back()
        self._kept = None
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def transaction(self, scope: Scope | None, role: Role = "runtime") -> AsyncIterator[Connection]:
        """Give a connection in a transaction that sees one organization, or all where the role may and scope is None."""
        pool = await self.pool(role)
        with translated():
            async with AsyncExitStack() as held:
                yield await _begun(pool, scope, held)

    async def _open(self, role: Role) -> asyncpg.Pool:
        pool = asyncpg.create_pool(
            self.url,
            min_size=self._pool_min,
            max_size=self._pool_max,
            reset=_reset,
            user=self._user(role),
            server_settings=self._session(role),
            timeout=_CONNECT_SECONDS,
            connection_class=KnowingConnection,
        )
        try:
            with translated(), admitted(role):
                await pool
                async with pool.acquire() as connection:
                    version = connection.get_server_version()
            if version.major < OLDEST_SERVER:
                raise Unsupported(f"PostgreSQL {version.major} is too old; NoETL needs {OLDEST_SERVER} or newer")
        except BaseException:
            # Nobody else knows it yet, so nobody would close what it has opened, also where its opening is cancelled.
            pool.terminate()
            raise
        return pool

    def _user(self, role: Role) -> str | None:
        return f"noetl_{role}" if self._as_roles else None

    def _session(self, role: Role) -> dict[str, str]:
        settings = {
            "application_name": f"noetl_{role}",
            "timezone": "UTC",
            "jit": "off",
            # A paused client must not hold its locks, a shard head above all, for longer than this.
            "idle_in_transaction_session_timeout": str(int(self._idle_seconds * 1000)),
        }
        return settings if self._as_roles else {**settings, "role": f"noetl_{role}"}


async def _begun(pool: asyncpg.Pool, scope: Scope | None, held: AsyncExitStack) -> Connection:
    """Begin a transaction; a connection that was cut while it lay idle is dropped, for nothing was asked of it yet."""
    for tries_left in range(pool.get_max_size(), -1, -1):
        async with AsyncExitStack() as taken:
            connection = await taken.enter_async_context(pool.acquire())
            try:
                await taken.enter_async_context(connection.transaction())
                if scope is not None:
                    await bind(connection, scope)
            except LOST:
                with suppress(asyncpg.InterfaceError):  # the pool may have taken it back by itself
                    connection.terminate()
                if not tries_left:
                    raise
            else:
                held.push_async_exit(taken.pop_all())
                return connection
    raise AssertionError("the last try either returns or raises")


async def bind(connection: Connection, scope: Scope) -> None:
    """Bind the open transaction to one tenant and organization."""
    await connection.execute(
        "SELECT set_config('noetl.tenant', $1, true), set_config('noetl.organization', $2, true)",
        scope.tenant_id,
        scope.organization_id,
    )


async def _reset(_: object) -> None:
    """Skip the pool's reset: scopes are transaction-local, so there is nothing to take back."""


@contextmanager
def admitted(role: Role) -> Iterator[None]:
    """Say which right a login lacks that may not speak as a role."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as problem:
        raise Denied(
            f"the database's login may not speak as noetl_{role}: {problem}",
            hint=f"log in as noetl_{role}, or let the owner `GRANT noetl_{role}` to the login",
        ) from None


class translated:  # noqa: N801 - reads as a word in `with translated():`
    """Turns lost connections and a server without room into `Unavailable` at the adapter's edge."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NoetlError) or error is None:
            return
        if isinstance(error, LOST):
            raise Unavailable(
                f"PostgreSQL does not answer: {str(error) or type(error).__name__}",
                hint="`noetl db status` shows which server is meant and whether it runs",
            ) from error
        if isinstance(
            error, asyncpg.UndefinedTableError | asyncpg.InvalidSchemaNameError | asyncpg.UndefinedFunctionError
        ):
            raise Unsupported(
                f"the database schema is missing or old: {error}", hint="run `noetl db migrate`"
            ) from error
