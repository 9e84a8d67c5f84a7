"""Connections that stay taken between short uses: a lone write would otherwise spend as long on taking one as on itself.

Few are kept, none for long, and none where the pool is small: whoever waits for a connection gets one soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

KEPT = 2
"""As many as one organization has statements of work under way."""
IDLE_SECONDS = 0.5
"""An unused connection goes back to the pool after this time, or up to twice of it."""
_POOL_SHARE = 4


class KeptConnections:
    """The connections kept of one pool."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._most = min(KEPT, pool.get_max_size() // _POOL_SHARE)
        self._idle: list[asyncpg.pool.PoolConnectionProxy] = []
        self._used = False
        self._looking: asyncio.TimerHandle | None = None
        self._returning: asyncio.Task[None] | None = None

    @property
    def idle(self) -> int:
        """How many are kept and not in use."""
        return len(self._idle)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """Give a connection for the time of the block, which must leave no transaction open."""
        connection = await self._take()
        self._used = True
        sound = False
        try:
            yield connection
            sound = True
        finally:
            # After an error nobody knows what it is in the middle of: the pool finds out.
            if sound and len(self._idle) < self._most and _is_open(connection):
                self._idle.append(connection)
                if self._looking is None:
                    self._looking = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._look)
            else:
                await self._pool.release(connection)

    async def close(self) -> None:
        """Give back what is kept."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._returning is not None:
            await self._returning
        await self._give_back()

    async def _take(self) -> asyncpg.pool.PoolConnectionProxy:
        while self._idle:
            connection = self._idle.pop()
            if _is_open(connection):
                return connection
            await self._pool.release(connection)
        return await self._pool.acquire()

    def _look(self) -> None:
        self._looking = None
        if self._used:
            self._used = False
            self._looking = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._look)
        elif self._idle:
            self._returning = asyncio.get_running_loop().create_task(self._give_back(), name="noetl-kept-connections")

    async def _give_back(self) -> None:
        while self._idle:
            await self._pool.release(self._idle.pop())


def _is_open(connection: asyncpg.pool.PoolConnectionProxy) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False  # the pool takes back by itself what is lost
