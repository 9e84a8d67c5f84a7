"""How events reach the ledger now, as the database says: appended directly or through the stream, and how that
changes.

A process trusts no setting: when the way has changed it asks again and uses the new one. A change stops appends,
waits until everything under way is in the ledger, and lets appends go on. It belongs to a holder with a lease, and
another process takes it over if the holder dies.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import ClassVar, Final, Literal
from uuid import UUID

import asyncpg
import msgspec

from noetl.errors import LeaseLost, NoetlError, Unavailable
from noetl.faults import reach
from noetl.kernel.ledger.batch import APPEND_SQL, PENDING_SQL
from noetl.kernel.ledger.postgres.database import Database

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


Drain = Callable[[], Awaitable[object]]
"""Returns when what is in the stream and nowhere else is in the ledger."""

_CHANGE_LOOK_SECONDS: Final = 0.05
_RENEWALS: Final = 5
"""How often a lease is renewed before it would end."""
_BEGIN = "SELECT mode, came_from, wanted, holder, lease_token FROM noetl.begin_change($1, $2, $3)"


class _Begun(msgspec.Struct, frozen=True):
    """What the database says to the wish for a change; with a token, the change is ours."""

    mode: str
    came_from: Mode | None
    wanted: Mode | None
    holder: str | None
    lease_token: UUID | None


class WritePathChange:
    """Changes of the write path by one process. `drain` is what they wait for on the way to the ledger."""

    def __init__(
        self,
        database: Database,
        way: WritePath,
        drain: Drain | None = None,
        *,
        holder: str | None = None,
        lease_seconds: float = 15.0,
        within_seconds: float = 60.0,
    ) -> None:
        self._database = database
        self._way = way
        self._drain = drain
        self._holder = holder or f"{socket.gethostname()}/{os.getpid()}"
        self._lease = timedelta(seconds=lease_seconds)
        self._within_seconds = within_seconds

    async def to(self, wanted: Mode) -> None:
        """Let all events go this way; whatever waits for the materializer is in the ledger before the first does.

        While that takes, nothing is appended: appends wait and then go the new way. A change that another process holds
        is waited for first.
        """
        deadline = time.monotonic() + self._within_seconds
        while (begun := await self._begin(wanted)).mode != wanted:
            if begun.lease_token is not None:
                with suppress(LeaseLost):
                    await self._finish(begun)
            elif time.monotonic() > deadline:
                raise Unavailable(
                    f"{begun.holder} still changes the write path to {begun.wanted}",
                    hint="start again once it has ended",
                )
            else:
                await asyncio.sleep(_CHANGE_LOOK_SECONDS)
        self._way.mode = wanted

    async def take_over(self) -> str | None:
        """End a change whose holder is silent for longer than its lease, and return where it led; None if there is none.

        Where it cannot be ended, the way is put back to what it was before, and what prevents it is raised.
        """
        begun = await self._begin(None)
        if begun.lease_token is None:
            return None
        await self._finish(begun)
        return begun.wanted

    async def _begin(self, wanted: Mode | None) -> _Begun:
        async with self._database.transaction(None) as connection:
            row = await connection.fetchrow(_BEGIN, wanted, self._holder, self._lease)
        assert row is not None
        begun = _Begun(*row)
        self._way.mode = begun.mode
        return begun

    async def _finish(self, begun: _Begun) -> None:
        """Drain and end the change; whatever goes wrong, put the way back as it was."""
        assert begun.lease_token is not None
        assert begun.wanted is not None
        reach("change.after_begin")
        try:
            async with self._renewing(begun.lease_token), asyncio.timeout(self._within_seconds):
                if begun.wanted == "ledger" and self._drain is not None:
                    await self._drain()
                reach("change.after_drain")
                while await self._end(begun.lease_token, begun.wanted) == "draining":
                    if not await self._renew(begun.lease_token):
                        raise LeaseLost("another process took this change of the write path over")
                    # Somebody else writes what waits.
                    await asyncio.sleep(_CHANGE_LOOK_SECONDS)
        except BaseException as problem:
            # Where even this fails, the lease ends and somebody else takes the change over.
            with suppress(NoetlError):
                await self._end(begun.lease_token, begun.came_from or begun.wanted)
            if not isinstance(problem, TimeoutError):
                raise
            raise Unavailable(
                f"events still wait for the materializer after {self._within_seconds:g} s, so the write path stays as it was",
                hint="start `noetl materializer`, and see `noetl stream status` for what it lacks",
            ) from None
        reach("change.after_end")

    async def _end(self, token: UUID, mode: Mode) -> str:
        async with self._database.transaction(None) as connection:
            self._way.mode = str(await connection.fetchval("SELECT noetl.end_change($1, $2)", token, mode))
        return self._way.mode

    async def _renew(self, token: UUID) -> bool:
        async with self._database.transaction(None) as connection:
            return bool(await connection.fetchval("SELECT noetl.renew_change($1, $2)", token, self._lease))

    @asynccontextmanager
    async def _renewing(self, token: UUID) -> AsyncIterator[None]:
        """Renew the lease for the time of the block. One that is lost harms nobody: the change is ended by its token."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._lease.total_seconds() / _RENEWALS)
                with suppress(NoetlError):
                    await self._renew(token)

        renewing = asyncio.create_task(renew(), name="noetl-write-path-lease")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
