"""The outbox: what has to follow from events, done at least once, each row on its own, by whoever leases it first.

Rows go in with their events; here they are leased, delivered and marked. One that keeps failing waits longer each time
and in the end is dead: visible, and armed again by hand. What fails because the platform is away never is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
import orjson

from noetl.engine.dispatch.polling import OUTBOX_RETRIES as REDELIVERY
from noetl.engine.dispatch.polling import Backoff, Repeating, Signal
from noetl.errors import NotFound, OutsideUnavailable, Unavailable
from noetl.faults import reach
from noetl.kernel.leases import operations, statements
from noetl.kernel.leases.kinds import OUTBOX
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.ids import Id64
from noetl.model.lease import Proof
from noetl.model.stream import Scope

_log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 20
LEASE_SECONDS: Final = 60.0
BATCH: Final = 500
_ERROR_CHARACTERS: Final = 2_000

_SCOPES: Final = statements.scopes(OUTBOX)
_READ: Final = ", known.kind, known.payload, known.execution_id, known.available_at"
_MARKS: Final = (("status", "text"), ("error", "text"))
_MARK: Final = """
status = own.status, last_error = own.error, processed_at = CASE own.status WHEN 'Done' THEN clock_timestamp() END
"""
_DEAD: Final = """
SELECT outbox_id::text AS outbox_id, kind, payload, execution_id, attempts, last_error, created_at
FROM noetl.outbox WHERE status = 'Dead' ORDER BY created_at, outbox_id LIMIT $1
"""
_REARM: Final = """
UPDATE noetl.outbox SET status = 'Pending', attempts = 0
WHERE status = 'Dead' AND ($1::uuid[] IS NULL OR outbox_id = ANY ($1)) RETURNING outbox_id
"""


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do."""

    outbox_id: str
    kind: str
    payload: dict[str, Any]
    execution_id: int
    attempts: int


class DeadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could not be done."""

    outbox_id: str
    kind: str
    payload: dict[str, Any]
    execution_id: Id64
    attempts: int
    last_error: str | None
    created_at: datetime


class Delivery(Protocol):
    """Does what rows of one kind ask for."""

    async def __call__(self, scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        """Do them, each as if it were alone, and return what went wrong by row; the rest is done."""
        ...


class Outbox:
    """Drains the outbox of all organizations; any number may run at once."""

    def __init__(
        self,
        database: Database,
        deliveries: Mapping[str, Delivery],
        *,
        backoff: Backoff = REDELIVERY,
        max_attempts: int = MAX_ATTEMPTS,
        lease_seconds: float = LEASE_SECONDS,
        every_seconds: float = 1.0,
    ) -> None:
        self._database = database
        self._deliveries = deliveries
        self._backoff = backoff
        self._max_attempts = max_attempts
        self._lease_seconds = lease_seconds
        self._every = every_seconds
        self.news = Signal()
        """Touched when rows were written in this process."""
        self.on_delivered: Callable[[Scope, Sequence[OutboxRow]], None] | None = None
        """Told which rows were leased and worked off."""
        self._repeating = Repeating("the outbox", self._look_once, every_seconds=every_seconds, news=self.news)

    def start(self) -> None:
        """Deliver again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop delivering; what is under way is left to whoever leases it next."""
        await self._repeating.stop()

    async def _look_once(self) -> float:
        while await self.drain():
            pass
        return self._every

    async def drain(self) -> int:
        """Deliver what is due in every organization, once, and return how many rows were taken."""
        async with self._database.transaction(None, "reaper") as connection:
            rows = await connection.fetch(_SCOPES)
        taken = await asyncio.gather(*(self.drain_scope(Scope(row[0], row[1])) for row in rows))
        return sum(taken)

    async def drain_scope(self, scope: Scope, limit: int = BATCH) -> int:
        """Deliver what is due in one organization."""
        async with self._database.transaction(scope) as connection:
            found = await operations.claim(connection, OUTBOX, self._lease_seconds, limit, returning=_READ)
        if not found:
            return 0
        found.sort(key=lambda leased: leased[1]["available_at"])
        leases: dict[str, Proof] = {}
        by_kind: dict[str, list[OutboxRow]] = {}
        rows = []
        for proof, read in found:
            row = OutboxRow(
                outbox_id=str(read["outbox_id"]),
                kind=read["kind"],
                payload=orjson.loads(read["payload"]),
                execution_id=read["execution_id"],
                attempts=proof.attempt,
            )
            leases[row.outbox_id] = proof
            by_kind.setdefault(row.kind, []).append(row)
            rows.append(row)
        await asyncio.gather(*(self._deliver(scope, kind, some, leases) for kind, some in by_kind.items()))
        if self.on_delivered is not None:
            self.on_delivered(scope, rows)
        return len(rows)

    async def _deliver(self, scope: Scope, kind: str, rows: Sequence[OutboxRow], leases: Mapping[str, Proof]) -> None:
        reach("outbox.before_deliver")
        problems = await self._problems(scope, kind, rows)
        reach("outbox.after_deliver")
        marks = [self._mark(row, problems.get(row.outbox_id)) for row in rows]
        waits, statuses, errors = (list(column) for column in zip(*marks, strict=True))
        async with self._database.transaction(scope) as connection:
            # Also what took longer than its lease is done, unless somebody else has it by now.
            await operations.give_back(
                connection, OUTBOX, [leases[row.outbox_id] for row in rows], waits, _MARKS, (statuses, errors), _MARK
            )
        reach("outbox.after_mark")

    def _mark(self, row: OutboxRow, problem: Exception | None) -> tuple[float | None, str, str | None]:
        """Return how long a row waits for its next try, its status, and what went wrong."""
        if problem is None:
            return None, "Done", None
        told = f"{type(problem).__name__}: {problem}"[:_ERROR_CHARACTERS].replace("\x00", "")
        _log.warning("%s %s could not be delivered (try %d): %s", row.kind, row.payload, row.attempts, told)
        # While the platform itself is away nothing is given up, however long it takes.
        is_away = isinstance(problem, Unavailable) and not isinstance(problem, OutsideUnavailable)
        if row.attempts >= self._max_attempts and not is_away:
            return None, "Dead", told
        return self._backoff.seconds(row.attempts), "Pending", told

    async def _problems(self, scope: Scope, kind: str, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                return await self._deliveries[kind](scope, rows)
        except Exception as problem:
            if len(rows) == 1 or isinstance(problem, TimeoutError):
                return {row.outbox_id: problem for row in rows}
        # One culprit must not take the others with it: deliver each by itself.
        found: dict[str, Exception] = {}
        for row in rows:
            found.update(await self._problems(scope, kind, [row]))
        return found

    async def list_dead(self, scope: Scope, limit: int = 100) -> list[DeadRow]:
        """Return rows that were given up, the oldest first."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_DEAD, limit)
        return [DeadRow(**{**dict(row), "payload": orjson.loads(row["payload"])}) for row in rows]

    async def rearm(self, scope: Scope, outbox_id: str | None = None) -> int:
        """Let a dead row, or all of them, be delivered again, and return how many there were."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_REARM, None if outbox_id is None else [outbox_id])
        if outbox_id is not None and not rows:
            raise NotFound(f"there is no dead outbox row {outbox_id}")
        self.news.touch()
        return len(rows)
