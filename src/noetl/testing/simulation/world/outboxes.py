"""The outbox in memory: the product's outbox leases, delivers and marks, and the rules of leases answer in PostgreSQL's place.

A property test holds the SQL of every kind of leased row against the same rules (`model/lease.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec

from noetl.errors import LeaseLost
from noetl.model.lease import Lease, Proof
from noetl.model.stream import Scope
from noetl.pipelines.tasks import outbox
from noetl.pipelines.tasks.outbox import OutboxRow
from noetl.testing.engines.memory import SCOPE
from noetl.testing.simulation.world.chance import replaced
from noetl.testing.simulation.world.process import Process

KIND = "end"
LEASE_SECONDS = 4.0


class _Row(msgspec.Struct, kw_only=True):
    """One thing to do, as its row would stand."""

    outbox_id: str
    available_at: datetime
    attempt: int = 0
    status: str = "Pending"
    lease: Lease | None = None


class MemoryOutbox:
    """The rows of an outbox; also the database and the connection that the product's outbox asks."""

    def __init__(self, now: Callable[[], datetime], fail: Callable[[str, str], None]) -> None:
        self._now = now
        self._fail = fail
        self.rows: dict[str, _Row] = {}
        self.delivered: Counter[str] = Counter()

    def add(self, name: str) -> None:
        """Put in something to do."""
        self.rows[name] = _Row(outbox_id=name, available_at=self._now())

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is left to do."""
        return all(row.status == "Done" for row in self.rows.values())

    @asynccontextmanager
    async def transaction(self, scope: Scope | None, role: str = "") -> AsyncIterator[MemoryOutbox]:
        """Give itself, as a database gives a connection."""
        yield self

    async def fetch(self, query: str) -> list[tuple[str, str]]:
        """Answer which organizations have something to do."""
        return [(SCOPE.tenant_id, SCOPE.organization_id)] if self._free() else []

    def _free(self) -> list[_Row]:
        now = self._now()
        return [
            row
            for row in self.rows.values()
            if row.status == "Pending" and row.available_at <= now and (row.lease is None or row.lease.expired(now))
        ]

    def claim(self, seconds: float, limit: int) -> list[tuple[Proof, dict[str, Any]]]:
        """Lease free rows."""
        found = []
        for row in sorted(self._free(), key=lambda one: (one.available_at, one.outbox_id))[:limit]:
            row.attempt += 1
            row.lease = Lease("outbox", row.attempt, str(uuid.uuid4()), self._now() + timedelta(seconds=seconds))
            read = {"outbox_id": row.outbox_id, "kind": KIND, "payload": b"{}", "execution_id": 1}
            proof = Proof((row.outbox_id,), row.attempt, row.lease.token)
            found.append((proof, {**read, "available_at": row.available_at}))
        return found

    def mark(self, proof: Proof, wait: float | None, status: str) -> bool:
        """End a lease if it is the holder's."""
        row = self.rows[proof.key[0]]
        if row.lease is None:
            return False
        try:
            row.lease.prove(proof.attempt, proof.token)
        except LeaseLost:
            return False
        self.put(row, wait, status)
        return True

    def put(self, row: _Row, wait: float | None, status: str) -> None:
        """Write a mark."""
        if row.status == "Done" and status != "Done":
            self._fail("what is delivered stays delivered", f"{row.outbox_id} was done, and is {status} again")
        row.lease, row.status = None, status
        row.available_at = self._now() + timedelta(seconds=wait or 0.0)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer the product's outbox in PostgreSQL's place for the block."""

        async def claim(rows: MemoryOutbox, _kind: Any, seconds: float, limit: int, *, returning: str = "") -> Any:
            return rows.claim(seconds, limit)

        async def give_back(
            rows: MemoryOutbox, _kind: Any, proofs: Any, waits: Any, _given: Any, values: Any, _also: Any
        ) -> Any:
            marked = zip(proofs, waits, values[0], strict=True)
            return frozenset(proof for proof, wait, status in marked if rows.mark(proof, wait, status))

        with replaced(outbox, "operations", SimpleNamespace(claim=claim, give_back=give_back)):
            yield


class Deliveries:
    """Delivers for one process: it takes a while, and now and then it fails."""

    def __init__(self, process: Process, rows: MemoryOutbox) -> None:
        self._process = process
        self._rows = rows

    async def __call__(self, scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        """Deliver rows."""
        await self._process.step()
        for row in rows:
            self._rows.delivered[row.outbox_id] += 1
        await asyncio.sleep(self._process.random.choice((0.2, 1.2)))
        failed = [row for row in rows if row.attempts == 1 and self._process.random.random() < 0.2]
        return {row.outbox_id: OSError("nobody answers") for row in failed}


class Deferred:
    """The rows as a process reaches them: every transaction takes a moment before and after."""

    def __init__(self, process: Process, rows: Any) -> None:
        self._process = process
        self._rows = rows

    @asynccontextmanager
    async def transaction(self, scope: Scope | None, role: str = "") -> AsyncIterator[Any]:
        """Give the rows."""
        await self._process.step()
        yield self._rows
        await self._process.step()
