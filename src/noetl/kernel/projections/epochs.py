"""Epochs of projections: barriers that say which executions are projected up to where, closed with their checkpoint.

Whoever takes a shard over closes what its last holder left open. Executions that nothing but barriers moved have none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.projections.stores.postgres import sql
from noetl.kernel.projections.stores.postgres.held_shards import Hold
from noetl.kernel.projections.trouble_log import Troubles
from noetl.model.event import Event

TELLING: Final = "checkpoint.committed"
"""The type of the events that tell of epochs, which therefore are no reason for another one."""

_CLOSE = f"""
WITH last AS (
    SELECT coalesce(max(epoch), 0) AS epoch, coalesce(max(position), $2) AS position
    FROM noetl.projection_epoch WHERE shard = $1)
INSERT INTO noetl.projection_epoch (shard, epoch, position, executions)
SELECT $1, last.epoch + 1, $3, moved.executions
FROM last CROSS JOIN LATERAL (
    SELECT jsonb_agg(DISTINCT jsonb_build_array(e.tenant_id, e.organization_id, e.execution_id::text)) AS executions
    FROM noetl.event AS e
    WHERE e.shard = $1 AND e.position > last.position AND e.position <= $3 AND e.event_type <> '{TELLING}'
      AND starts_with(e.stream_id, 'execution/')
      AND NOT EXISTS (SELECT FROM noetl.broken_stream AS b WHERE b.tenant_id = e.tenant_id
          AND b.organization_id = e.organization_id AND b.stream_id = 'execution/' || e.execution_id)) AS moved
WHERE moved.executions IS NOT NULL
"""  # noqa: S608
_FORGET = """
DELETE FROM noetl.projection_epoch WHERE shard = $1 AND told
    AND epoch < (SELECT max(epoch) FROM noetl.projection_epoch WHERE shard = $1)
"""


class Epochs:
    """A hold that closes an epoch of each shard that moved, once per interval."""

    def __init__(
        self,
        database: Database,
        hold: Hold,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._hold = hold
        self._interval = interval_seconds
        self._clock = clock
        self._closed: dict[int, float] = {}
        self._moved: set[int] = set()
        self._troubles = Troubles()

    async def check(self, connection: Connection, shard: int) -> None:
        """Ask the hold."""
        await self._hold.check(connection, shard)

    async def moving(self, connection: Connection, shard: int, upto: int, events: Sequence[Event]) -> None:
        """Close an epoch with the move of a checkpoint if one is due; otherwise it is closed within the interval."""
        await self._hold.moving(connection, shard, upto, events)
        self._moved.add(shard)
        if self._clock() - self._closed.get(shard, 0.0) >= self._interval:
            before = events[0].position - 1 if events else upto
            await self._close(connection, shard, before, upto)

    def hold(self, shards: frozenset[int]) -> None:
        """Look after these shards from now on, also after what their last holders did not come to close."""
        self._moved = (self._moved & shards) | (shards - self._closed.keys())
        self._closed = {shard: at for shard, at in self._closed.items() if shard in shards}

    async def run(self) -> None:
        """Close what is due, until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            for shard in sorted(self._moved):
                try:
                    await self.close(shard)
                    self._troubles.over(shard)
                except Exception as error:
                    self._troubles.meet(shard, error)

    async def close(self, shard: int) -> None:
        """Close an epoch at the shard's checkpoint if anything moved since the last one."""
        self._moved.discard(shard)
        try:
            async with self._database.transaction(None, "projector") as connection:
                checkpoint = await connection.fetchrow(sql.LOCK, shard)
                assert checkpoint is not None
                await self.check(connection, shard)
                await self._close(connection, shard, checkpoint["position"], checkpoint["position"])
        except BaseException:
            self._moved.add(shard)
            raise

    async def _close(self, connection: Connection, shard: int, before: int, upto: int) -> None:
        await connection.execute(_CLOSE, shard, before, upto)
        await connection.execute(_FORGET, shard)
        self._closed[shard] = self._clock()
