"""Tells when events that wait for the materializer are in the ledger: those who wait share one look."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.notifier import listening
from noetl.model.mark import VersionToken
from noetl.model.stream import Scope

COVERED_SECONDS = 30.0
"""How long an append waits for the materializer before it says that it does not know where its events stand."""
_LOOK_SECONDS = 0.25
_MOMENT_SECONDS = 0.02

_FIND = """
SELECT e.execution_id, e.event_id, e.position FROM unnest($1::bigint[], $2::bigint[]) AS asked (execution_id, event_id)
JOIN noetl.event AS e USING (execution_id, event_id)
"""

# What was recorded together has one time of ingestion, and these ascend: nothing that old may wait any more.
_COVERED = """
SELECT asked.number FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::smallint[]) WITH ORDINALITY
    AS asked (execution_id, stream_id, version, shard, number)
WHERE NOT EXISTS (
    SELECT FROM noetl.pending_event AS p WHERE p.execution_id = asked.execution_id AND p.shard = asked.shard
    AND p.ingest_time <= (
        SELECT e.ingest_time FROM noetl.known_event AS e
        WHERE e.execution_id = asked.execution_id AND e.stream_id = asked.stream_id AND e.stream_version = asked.version))
"""

_HEADS = "SELECT shard, position FROM noetl.shard_outbox"
_WAITS = """
SELECT EXISTS (SELECT FROM unnest($1::smallint[], $2::bigint[]) AS asked (shard, position)
               WHERE noetl.waits_upto(asked.shard, asked.position))
"""

_Key = tuple[int, int] | VersionToken
"""An event by its execution's id and its own, or a version of a stream."""


class Coverage:
    """Waits for events, of any organization, to stand in the ledger."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        self._database = database
        self._poll_seconds = min(poll_seconds, _LOOK_SECONDS)
        self._waiting: dict[Scope, dict[_Key, list[asyncio.Future[int]]]] = defaultdict(dict)
        self._looking: asyncio.Task[None] | None = None

    async def position(self, scope: Scope, execution_id: int, event_id: int, seconds: float) -> int:
        """Return where the event stands, once it does; after the time, raise `Unavailable`."""
        return await self._wait(scope, (execution_id, event_id), f"event {event_id}", seconds)

    async def version(self, scope: Scope, token: VersionToken, seconds: float) -> None:
        """Return once all that the token stands for is in the ledger; after the time, raise `Unavailable`."""
        await self._wait(scope, token, f"version {token.version} of {token.stream_id}", seconds)

    async def _wait(self, scope: Scope, key: _Key, named: str, seconds: float) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asked = self._waiting[scope].setdefault(key, [])
        asked.append(answer)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="noetl-coverage")
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise Unavailable(
                f"{named} is accepted, and {seconds:g} s later not in the ledger yet",
                hint="`noetl stream status` shows how far the materializer is",
            ) from None
        finally:
            asked.remove(answer)

    async def nothing_waits(self, seconds: float) -> None:
        """Return once everything that waits now is in the ledger; after the time, raise `Unavailable`."""
        async with self._database.transaction(None) as connection:
            ahead = {row["shard"]: row["position"] for row in await connection.fetch(_HEADS)}
        shards, positions = list(ahead), list(ahead.values())
        try:
            async with asyncio.timeout(seconds):
                while True:
                    async with self._database.transaction(None) as connection:
                        if not await connection.fetchval(_WAITS, shards, positions):
                            return
                    await asyncio.sleep(_MOMENT_SECONDS)
        except TimeoutError:
            raise Unavailable(
                f"after {seconds:g} s events still wait for the materializer",
                hint="`noetl stream status` shows how far it is",
            ) from None

    async def close(self) -> None:
        """Let go of those who wait."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    async def _look(self) -> None:
        """Look, and look again after each notification or a moment, until nobody waits."""
        while any(self._waiting.values()):
            try:
                # Most are in the ledger already: for those no connection is opened to listen on.
                if await self._answer():
                    continue
                async with listening(self._database, "runtime", self._poll_seconds) as listener:
                    while any(self._waiting.values()) and not listener.lost:
                        await self._answer()
                        if any(self._waiting.values()):
                            await listener.wait()
            except NoetlError:
                await asyncio.sleep(self._poll_seconds)

    async def _answer(self) -> bool:
        """Answer those whose events stand, and tell whether there were any."""
        found = False
        for scope in list(self._waiting):
            keys = [key for key, asked in self._waiting[scope].items() if any(not one.done() for one in asked)]
            for key in set(self._waiting[scope]) - set(keys):
                del self._waiting[scope][key]
            if not keys:
                del self._waiting[scope]
                continue
            for key, position in (await self._standing(scope, keys)).items():
                found = True
                for one in self._waiting[scope].pop(key, []):
                    if not one.done():
                        one.set_result(position)
        return found

    async def _standing(self, scope: Scope, keys: list[_Key]) -> dict[_Key, int]:
        """Return which of these are in the ledger: events with their positions, versions with none."""
        versions = [key for key in keys if isinstance(key, VersionToken)]
        events = [key for key in keys if not isinstance(key, VersionToken)]
        standing: dict[_Key, int] = {}
        async with self._database.transaction(scope) as connection:
            if events:
                rows = await connection.fetch(_FIND, [key[0] for key in events], [key[1] for key in events])
                standing |= {(row["execution_id"], row["event_id"]): row["position"] for row in rows}
            if versions:
                rows = await connection.fetch(
                    _COVERED,
                    [key.execution_id for key in versions],
                    [key.stream_id for key in versions],
                    [key.version for key in versions],
                    [scope.stream(key.stream_id).shard for key in versions],
                )
                standing |= {versions[row["number"] - 1]: 0 for row in rows}
        return standing
