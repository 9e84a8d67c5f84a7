"""Sends what happened to tasks, shard by shard, from where it stopped: first the receiver has it, then the cursor moves.

A crash in between repeats the last page. Nothing is skipped: a receiver that does not answer is tried again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, Protocol

from noetl.errors import NoetlError
from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.services.openlineage.events import line_of
from noetl.services.openlineage.fact_reader import Gathering
from noetl.services.openlineage.transports import Transport

_log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 2.0
"""How often one looks for news."""
_LONGEST_PAUSE: Final = 60.0
_CURSORS: Final = "SELECT shard, position FROM noetl.openlineage_cursor WHERE receiver = $1"
_MOVE: Final = """
INSERT INTO noetl.openlineage_cursor AS known (tenant_id, organization_id, receiver, shard, position)
VALUES ($1, $2, $3, $4, $6)
ON CONFLICT (tenant_id, organization_id, receiver, shard) DO UPDATE
    SET position = excluded.position, moved_at = clock_timestamp() WHERE known.position = $5
RETURNING position
"""


class EventPages(Protocol):
    """A ledger that is read in pages, each in order, none of them empty."""

    async def head(self) -> Mark:
        """Return the last position given out in each shard."""
        ...

    def shard_pages(
        self, shard: int, from_position: int = 1, *, scope: Scope | None = None, to_position: int | None = None
    ) -> AsyncIterator[list[Event]]:
        """Give the events of a shard by position, both bounds included."""
        ...


class Emitter:
    """Tells one receiver about the tasks of one organization. Several may do so at once: the receiver sees repeats then."""

    def __init__(
        self, scope: Scope, database: Database, history: EventPages, gathering: Gathering, transport: Transport
    ) -> None:
        self._scope = scope
        self._database = database
        self._history = history
        self._gathering = gathering
        self._transport = transport

    @property
    def receiver(self) -> str:
        """Who is told."""
        return self._transport.receiver

    async def emit(self) -> int:
        """Tell everything up to now, and return how many events that were."""
        head = await self._history.head()
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_CURSORS, self.receiver)
        cursors = {row["shard"]: row["position"] for row in rows}
        sent = 0
        for shard, last in enumerate(head.positions):
            position = cursors.get(shard, 0)
            while position < last:
                told, reached = await self._page(shard, position, last)
                sent += told
                if not await self._moved(shard, position, reached):
                    break  # another one tells this shard
                position = reached
        return sent

    async def follow(self, every_seconds: float = EVERY_SECONDS) -> int:
        """Go on telling until cancelled; what cannot be told is tried again after a while."""
        pause, sent = every_seconds, 0
        while True:
            try:
                sent += await self.emit()
                pause = every_seconds
            except NoetlError as problem:
                pause = min(_LONGEST_PAUSE, pause * 2)
                _log.warning("OpenLineage events could not be sent, again in %g s: %s", pause, problem.message)
            await asyncio.sleep(pause)

    async def _page(self, shard: int, after: int, last: int) -> tuple[int, int]:
        """Tell the next page of a shard; return how many events that were, and the position it reaches to."""
        pages = self._history.shard_pages(shard, after + 1, scope=self._scope, to_position=last)
        page = await anext(aiter(pages), None)
        if isinstance(pages, AsyncGenerator):
            # What follows may take long; no query stays open for it.
            await pages.aclose()
        if page is None:
            return 0, last
        lines = [line_of(facts) for facts in await self._gathering.facts(page)]
        if lines:
            reach("openlineage.before_send")
            await self._transport.send(lines)
            reach("openlineage.after_send")
        return len(lines), page[-1].position

    async def _moved(self, shard: int, before: int, after: int) -> bool:
        scope = self._scope
        values = (scope.tenant_id, scope.organization_id, self.receiver, shard, before, after)
        async with self._database.transaction(scope) as connection:
            moved = await connection.fetchval(_MOVE, *values)
        reach("openlineage.after_cursor")
        return moved is not None
