"""How events reach the ledger at the moment, as the database says: by appends themselves, or through the stream.

A process takes no setting's word for it: whoever finds that the way was changed asks again and goes the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal

import asyncpg

from noetl.errors import Unavailable
from noetl.ledger.batch import APPEND_SQL, PENDING_SQL
from noetl.ledger.database import Database

Mode = Literal["ledger", "stream"]


_LOOK_SECONDS = 0.05


class WayChangedError(asyncpg.PostgresError):
    """What the database says to an append that goes the wrong way; the driver raises it by its code."""

    sqlstate: ClassVar[str] = "NE001"


class WritePath:
    """Which way the appends of this process go."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looked = False
        self.mode: str = "ledger"

    @property
    def sql(self) -> str:
        """The statement that appends."""
        return PENDING_SQL if self.mode == "stream" else APPEND_SQL

    @property
    def waits(self) -> bool:
        """Whether events are left waiting for the materializer."""
        return self.mode == "stream"

    async def look(self) -> str:
        """Ask the database, and return the way."""
        async with self._database.transaction(None) as connection:
            self.mode = str(await connection.fetchval("SELECT mode FROM noetl.write_path"))
        self._looked = True
        return self.mode

    async def known(self) -> str:
        """Return the way, asking the database if nobody has yet."""
        return self.mode if self._looked else await self.look()

    async def change(
        self, wanted: Mode, drain: Callable[[], Awaitable[object]] | None = None, *, within_seconds: float = 60.0
    ) -> None:
        """Let all events go another way; whatever waits for the materializer is in the ledger before the first does.

        While that takes, nothing is appended: appends wait and then go the new way. `drain` waits for what is in the
        stream and nowhere else.
        """
        before = await self.look()
        if before == wanted:
            return
        await self._set("draining")
        self.mode = "draining"
        try:
            async with asyncio.timeout(within_seconds):
                if drain is not None:
                    await drain()
                while await self._set(wanted) != wanted:  # noqa: ASYNC110 - another process writes what waits
                    await asyncio.sleep(_LOOK_SECONDS)
        except (TimeoutError, Unavailable) as problem:
            self.mode = await self._set("stream" if before == "draining" else before)
            if isinstance(problem, Unavailable):
                raise
            raise Unavailable(
                f"events still wait for the materializer after {within_seconds:g} s, so the write path stays as it was",
                hint="start `noetl materializer`, and see `noetl stream status` for what it lacks",
            ) from None
        self.mode = wanted

    async def _set(self, mode: str) -> str:
        async with self._database.transaction(None) as connection:
            return str(await connection.fetchval("SELECT noetl.change_write_path_v1($1)", mode))
