"""How events reach the ledger at the moment, as the database says: by appends themselves, or through the stream.

A process takes no setting's word for it: whoever finds that the way was changed asks again and goes the new one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import asyncpg

from noetl.ledger.batch import APPEND_SQL, PENDING_SQL
from noetl.ledger.database import Database

Mode = Literal["ledger", "stream"]


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
