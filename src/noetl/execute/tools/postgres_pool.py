"""The worker's pools of PostgreSQL connections, one per database and user. A session comes back as it was lent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from noetl.execute.tools.port import Call, Resources
from noetl.execute.tools.postgres_target import (
    CONNECT_SECONDS,
    Connection,
    Target,
    find_target,
    prepare_types,
    readable_settings,
)

_CLOSE_SECONDS = 10.0
_RESTORE = (
    "SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; "
    "SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)


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
        with readable_settings():
            connection = await self._pool.acquire()
        try:
            yield connection
        except BaseException:
            # Whether the transaction is still open is not known while a query is being cancelled.
            await _settle(connection, failed=True, restore=restore)
            raise
        else:
            await _settle(connection, failed=False, restore=restore)
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
            timeout=CONNECT_SECONDS,
            statement_cache_size=target.cached_statements,
        )
        return Pool(target, pool)

    pool: Pool = await resources.get(("postgres", target), make)
    return pool


async def pool_of(call: Call) -> Pool:
    """Return the worker's pool for the database a call names."""
    target = await find_target(call.credentials, call.auth, call.options.get("pool"))
    return await pool_for(call.resources, target)


async def _keep(_: object) -> None:
    """Skip the pool's own restoring: a round trip that few statements need."""


async def _settle(connection: Connection, *, failed: bool, restore: bool) -> None:
    # One that was cut off while it was lent has left the pool, and answers every question with an InterfaceError.
    try:
        if connection.is_closed() or not (failed or restore or connection.is_in_transaction()):
            return
        async with asyncio.timeout(_CLOSE_SECONDS):
            if failed or connection.is_in_transaction():
                await connection.execute("ROLLBACK")
            if restore:
                await connection.execute(_RESTORE)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        with suppress(asyncpg.InterfaceError):
            connection.terminate()
