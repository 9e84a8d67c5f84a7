"""Gives each process a node number of its own for minting ids: a session lock in the database, held while it lives."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import asyncpg

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import LOST, Database
from noetl.model.ids import MAX_NODE, SnowflakeGenerator

_LOCK_CLASS = 1_852_798_316  # the space of our advisory locks
_RECLAIM_SECONDS = 1.0


class Ids:
    """Mints ids under a node number no other live process of this database holds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None
        self._generator: SnowflakeGenerator | None = None
        self._reclaiming: asyncio.Task[None] | None = None
        self._closing = False

    def mint(self) -> int:
        """Return a new id."""
        assert self._generator is not None, "open before minting"
        return self._generator.mint()

    def mint_many(self, count: int) -> list[int]:
        """Return new ids in growing order."""
        assert self._generator is not None, "open before minting"
        return self._generator.mint_many(count)

    async def open(self) -> None:
        """Take a free number."""
        connection = await self._database.connect()
        # Start anywhere, so that processes that start together do not all try the same numbers.
        first = random.randrange(MAX_NODE + 1)  # noqa: S311 - not a secret
        for step in range(MAX_NODE + 1):
            node = (first + step) % (MAX_NODE + 1)
            if await connection.fetchval("SELECT pg_try_advisory_lock($1, $2)", _LOCK_CLASS, node):
                self._generator = SnowflakeGenerator(node, lambda: time.time_ns() // 1_000_000)
                self._connection = connection
                connection.add_termination_listener(self._lost)
                return
        await connection.close()
        raise Unavailable(f"all {MAX_NODE + 1} node numbers of this database are taken by live processes")

    async def close(self) -> None:
        """Give the number back."""
        self._closing = True
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            with suppress(asyncio.CancelledError):
                await self._reclaiming
        if self._connection is not None:
            with suppress(*LOST):
                await self._connection.close(timeout=2)

    def _lost(self, _connection: object) -> None:
        # The lock went with the connection, so somebody else may take the number: get another.
        if not self._closing:
            self._reclaiming = asyncio.get_running_loop().create_task(self._reclaim(), name="noetl-node-number")

    async def _reclaim(self) -> None:
        while True:
            try:
                return await self.open()
            except (*LOST, Unavailable):
                await asyncio.sleep(_RECLAIM_SECONDS)
