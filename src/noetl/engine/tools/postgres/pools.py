"""The worker's pools of PostgreSQL connections, one per database and user. A session comes back as it was lent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from noetl.engine.tools.port import Call, Resources
from noetl.engine.tools.postgres.target import Target, find_target

_CLOSE_SECONDS = 10.0
_IDLE_SECONDS = 300.0
_RESTORE = (
    "SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; "
    "SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)


class Pool:
    """The worker's connections to one target, and what it learned of the statements sent there."""

    def __init__(self, target: Target) -> None:
        self.place = target.place
        self._target = target
        self._places = asyncio.Semaphore(target.pool_size)
        self._free: list[tuple[asyncpg.Connection, float]] = []
        """Those nobody has, and since when; the last one back is lent first, so that the others grow old."""
        self._lent: set[asyncpg.Connection] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self.met: dict[str, dict[str, str]] = {}
        """Statements that came before, with the types of those of their columns that JSON cannot tell."""
        self.bound: dict[str, Any] = {}
        """Statements with parameters, as they are sent."""

    def connection(self, *, restore: bool = False) -> _Loan:
        """Lend a connection; `restore` takes the session back to how it began before another gets it."""
        return _Loan(self, restore=restore)

    async def take(self) -> asyncpg.Connection:
        """Take a connection out, a new one if none is free; waits while as many as there may be are taken."""
        await self._places.acquire()
        try:
            while self._free:
                connection, _ = self._free.pop()
                if not connection.is_closed():
                    break
            else:
                connection = await self._target.connect()
        except BaseException:
            self._places.release()
            raise
        self._lent.add(connection)
        return connection

    def give_back(self, connection: asyncpg.Connection, *, is_clean: bool) -> None:
        """Put a connection back; one in an unknown state is cut off instead."""
        self._lent.discard(connection)
        self._places.release()
        if connection.is_closed():
            return
        if not is_clean:
            connection.terminate()
            return
        self._free.append((connection, asyncio.get_running_loop().time()))
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="noetl-postgres-pool")

    async def _sweep(self) -> None:
        """Close what was idle for long."""
        while True:
            await asyncio.sleep(_IDLE_SECONDS / 2)
            before = asyncio.get_running_loop().time() - _IDLE_SECONDS
            # The oldest stand first. One at a time, so that whoever ends this finds the others where they were.
            while self._free and self._free[0][1] <= before:
                await _close(self._free.pop(0)[0])

    def forget(self) -> None:
        """Forget what was learned of statements."""
        self.met.clear()
        self.bound.clear()

    def meet(self, text: str, types: dict[str, str]) -> dict[str, str]:
        """Note a text that came, so that it is worth preparing; most texts with a row's values come once."""
        if len(self.met) >= 1000:
            self.met.clear()
        self.met[text] = types
        return types

    async def aclose(self) -> None:
        """Close all connections; one that does not come back in time is cut off."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                for _ in range(self._target.pool_size):
                    await self._places.acquire()
        except TimeoutError:
            for connection in self._lent:
                connection.terminate()
        while self._free:
            await _close(self._free.pop()[0])


class _Loan:
    """A connection for the length of a block."""

    __slots__ = ("_connection", "_pool", "_restore")

    def __init__(self, pool: Pool, *, restore: bool) -> None:
        self._pool = pool
        self._restore = restore
        self._connection: asyncpg.Connection

    async def __aenter__(self) -> asyncpg.Connection:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        connection, is_clean = self._connection, False
        try:
            # Whether the transaction is still open is not known while a query is being cancelled.
            if kind is not None or self._restore or connection.is_in_transaction():
                await _settle(connection, failed=kind is not None, restore=self._restore)
            is_clean = True
        finally:
            self._pool.give_back(connection, is_clean=is_clean)


async def pool_for(resources: Resources, target: Target) -> Pool:
    """Return the worker's pool for a target."""

    async def make() -> Pool:
        return Pool(target)

    pool: Pool = await resources.get(("postgres", target), make)
    return pool


async def pool_of(call: Call) -> Pool:
    """Return the worker's pool for the database a call names."""
    target = await find_target(call.credentials, call.auth, call.options.get("pool"))
    return await pool_for(call.resources, target)


async def _settle(connection: asyncpg.Connection, *, failed: bool, restore: bool) -> None:
    try:
        if connection.is_closed():
            return
        async with asyncio.timeout(_CLOSE_SECONDS):
            if failed or connection.is_in_transaction():
                await connection.execute("ROLLBACK")
            if restore:
                await connection.execute(_RESTORE)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


async def _close(connection: asyncpg.Connection) -> None:
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=_CLOSE_SECONDS)
