"""How events reach the ledger at the moment, as the database says: by appends themselves, or through the stream.

A process takes no setting's word for it: whoever finds that the way was changed asks again and goes the new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar, Final, Literal

import asyncpg

from noetl.errors import LeaseLost, Unavailable
from noetl.ledger.batch import APPEND_SQL, PENDING_SQL
from noetl.ledger.database import Database

Mode = Literal["ledger", "stream"]

_LOOK_SECONDS: Final = 0.05


class WayChangedError(asyncpg.PostgresError):
    """What the database says to an append that goes the wrong way; the driver raises it by its code."""

    sqlstate: ClassVar[str] = "NE001"


class WritePath:
    """Which way the appends of this process go."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looked = False
        self.mode: str = "ledger"
        self.refusal: Callable[[], Unavailable] | None = None
        """What to say to those who write through the stream, in a process that should bring it there and cannot."""

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

    async def steady(self, seconds: float, meanwhile: Callable[[], Awaitable[object]] | None = None) -> str:
        """Return the way once nobody changes it; after the time, raise `Unavailable`. `meanwhile` is done at each look."""
        deadline = time.monotonic() + seconds
        while await self.look() == "draining":
            if meanwhile is not None:
                with suppress(LeaseLost):
                    await meanwhile()
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the write path is being changed for more than {seconds:g} s",
                    hint="`noetl stream status` shows what it waits for",
                )
            await asyncio.sleep(_LOOK_SECONDS)
        return self.mode

    async def check(self) -> None:
        """Refuse a write that would wait for ever; whether the way still is the stream is asked anew each time."""
        if self.refusal is not None and self.waits and await self.look() == "stream":
            raise self.refusal()
