"""Writes what is left in the stream of writes into the ledger, in processes that do not materialize by themselves.

A fact may be acknowledged a moment after the write path was changed, by a process that has not noticed. It is in the
stream alone then, and whoever has a connection to the stream brings it to the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from noetl.errors import NoetlError, NotFound
from noetl.kernel.leases.shards import holders
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.cancellation import ended
from noetl.kernel.stream.port import EventStream, Place, StreamState
from noetl.kernel.stream.write_path.written_messages import unread

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_SOON_SECONDS: Final = 0.05

Materializing = Callable[[], AbstractAsyncContextManager[object]]
"""Materializes for the time of a block."""


@asynccontextmanager
async def bringing_leftovers(
    database: Database, writes: EventStream, materializing: Materializing
) -> AsyncIterator[None]:
    """Look at once and then every second for the time of the block, and write what nobody else does."""
    task = asyncio.get_running_loop().create_task(
        _Leftovers(database, writes, materializing).bring(), name="noetl-leftovers"
    )
    try:
        yield
    finally:
        await ended(task)


class _Leftovers:
    def __init__(self, database: Database, writes: EventStream, materializing: Materializing) -> None:
        self._database = database
        self._writes = writes
        self._materializing = materializing
        self._seen: tuple[str, dict[Place, str]] | None = None
        """Identity and last message of the stream when all of it was last known to be in the ledger."""

    async def bring(self) -> None:
        while True:
            try:
                if await self._left():
                    await self._materialize()
            except NoetlError:
                _log.debug("the stream of writes could not be looked at", exc_info=True)
            await asyncio.sleep(LOOK_SECONDS)

    async def _left(self) -> bool:
        """Tell whether there is anything unread in a shard that nobody materializes."""
        try:
            state = await self._writes.state()
        except NotFound:
            return False
        if await self._is_seen(state):
            return False
        ends = await self._writes.ends()
        found = await unread(self._database, self._writes)
        if not found:
            last = max(ends, key=lambda place: place.sequence, default=None)
            self._seen = (state.created, {} if last is None else {last: ends[last]})
            return False
        held = {one.shard for one in await holders(self._database) if one.role == "materializer"}
        return not {place.shard for place in found} <= held

    async def _is_seen(self, state: StreamState) -> bool:
        """Tell whether the stream is as it was when all of it was in the ledger; its last message tells, not its length."""
        if self._seen is None or self._seen[0] != state.created:
            return False
        last = self._seen[1]
        upto = max((place.sequence for place in last), default=0)
        return upto == state.last_sequence and await self._writes.ids_at(list(last)) == last

    async def _materialize(self) -> None:
        _log.warning(
            "the stream %s has messages that are not in the ledger, and nobody writes them: this process does",
            self._writes.name,
        )
        async with self._materializing():
            while await unread(self._database, self._writes):  # noqa: ASYNC110 - the materializer tells nobody
                await asyncio.sleep(_SOON_SECONDS)
        _log.info("everything in the stream %s is in the ledger", self._writes.name)
