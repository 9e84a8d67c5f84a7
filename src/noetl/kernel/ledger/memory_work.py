"""Rows of work in memory, and the leases on them: checked by fences, renewed by heartbeats, granted and ended by
events.

The rules that turn events into rows are folds of a layer above; its protocols say what the ledger asks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from noetl.errors import EventInvalid
from noetl.kernel.ledger.transition import Fence
from noetl.model.event import Event
from noetl.model.stream import Scope


class Lease(NamedTuple):
    """How long a row is held, and since when nothing was heard of its holder. Heartbeats move both."""

    attempt: int
    token: str
    until: datetime
    last_heartbeat: datetime


class MemoryWork:
    """The rows of all organizations, changed by transitions and by heartbeats only."""

    def __init__(self, new_rows: NewRows, now: Callable[[], datetime]) -> None:
        self._new_rows = new_rows
        self.now = now
        """The clock that leases last by."""
        self._rows: dict[Scope, WorkRows] = {}
        self._leases: dict[tuple[Scope, str, int, str], Lease] = {}
        self._holders: dict[tuple[Scope, str, int, str], str] = {}
        self._applied: dict[Scope, list[Event]] = {}

    def scopes(self) -> list[Scope]:
        """Return the organizations that have had any work."""
        return list(self._rows)

    def rows(self, scope: Scope, table: str) -> Mapping[str, WorkRow]:
        """Return the rows of a table by names that no two of them share."""
        return self._rows[scope].rows(table) if scope in self._rows else {}

    def row(self, scope: Scope, table: str, execution_id: int, row_id: str) -> WorkRow | None:
        """Return a row, if it stands."""
        return self._rows[scope].row(table, execution_id, row_id) if scope in self._rows else None

    def lease(self, scope: Scope, table: str, execution_id: int, row_id: str) -> Lease | None:
        """Return the lease on a row; None where nobody holds it."""
        return self._leases.get((scope, table, execution_id, row_id))

    def last_holder(self, scope: Scope, table: str, execution_id: int, row_id: str) -> str | None:
        """Return the worker that holds a row, or held it last."""
        return self._holders.get((scope, table, execution_id, row_id))

    def renew(self, scope: Scope, fence: Fence) -> bool:
        """Let a held lease last its full time from now on, never shorter than before; tell whether it was held."""
        if self.is_broken(scope, fence):
            return False
        row = self.row(scope, fence.table, fence.execution_id, fence.id)
        key = (scope, fence.table, fence.execution_id, fence.id)
        assert row is not None
        now, held = self.now(), self._leases[key]
        until = max(held.until, now + timedelta(seconds=row["lease_seconds"]))
        self._leases[key] = held._replace(until=until, last_heartbeat=now)
        return True

    def broken(self, scope: Scope, fences: Sequence[Fence]) -> bool:
        """Tell whether any of the fences of one change does not hold."""
        return any(self.is_broken(scope, fence, fences[:number]) for number, fence in enumerate(fences))

    def is_broken(self, scope: Scope, fence: Fence, before: Sequence[Fence] = ()) -> bool:
        """Tell whether a fence does not hold, beside those of the same change that stand before it."""
        row = self.row(scope, fence.table, fence.execution_id, fence.id)
        if row is None:
            return True
        if fence.mode == "room":
            return not self._has_room(scope, row, fence.attempt, before)
        if fence.mode in ("open", "ended"):
            return (row["available_at"] is None) is (fence.mode == "open")
        if row["attempt"] != fence.attempt:
            return True
        if fence.mode == "free":
            return row["lease_token"] is not None or not self._is_available(fence, row)
        lease = self.lease(scope, fence.table, fence.execution_id, fence.id)
        if lease is None or fence.token is None or lease.token != str(UUID(fence.token)):
            return True
        return (lease.until > self.now()) is (fence.mode == "expired")

    def _is_available(self, fence: Fence, row: WorkRow) -> bool:
        # Commands and frames are picked by their time before they are claimed; a task's fence asks for it again.
        return fence.table != "task" or (row["available_at"] is not None and _time(row["available_at"]) <= self.now())

    def _has_room(self, scope: Scope, job: WorkRow, limit: int, before: Sequence[Fence]) -> bool:
        generation = job["generation"]
        tasks = (row for row in self.rows(scope, "task").values() if row["status"] == "Running")
        jobs = (self.row(scope, "job", 0, fence.id) for fence in before if fence.mode == "room")
        taken = [row for row in (*tasks, *jobs) if row is not None and row["generation"] == generation]
        return len(taken) < limit

    def apply(self, scope: Scope, events: Sequence[Event]) -> None:
        """Change the rows as the events of one transition say, by all of them or, if one makes no row, by none."""
        rows = self._rows.setdefault(scope, self._new_rows())
        try:
            for event in events:
                rows.apply(event)
        except (TypeError, ValueError, KeyError, AttributeError) as problem:
            # What the first of them changed is undone by folding again what stands.
            self._rows[scope] = self._folded(self._applied.get(scope, ()))
            raise EventInvalid(f"the ledger refuses this event: {problem}") from problem
        self._applied.setdefault(scope, []).extend(events)
        for event in events:
            self._lease(scope, rows, event)

    def _folded(self, events: Iterable[Event]) -> WorkRows:
        rows = self._new_rows()
        for event in events:
            rows.apply(event)
        return rows

    def _lease(self, scope: Scope, rows: WorkRows, event: Event) -> None:
        """Begin a lease where an event gave a row to somebody, and end one where it took it away."""
        for table, execution_id, row_id in rows.touched(event):
            key = (scope, table, execution_id, row_id)
            row = rows.row(table, execution_id, row_id)
            if row is None or row["lease_token"] is None:
                self._leases.pop(key, None)
                continue
            if row.get("worker"):
                self._holders[key] = row["worker"]
            known = self._leases.get(key)
            if known is None or known[:2] != (row["attempt"], row["lease_token"]):
                until = event.ingest_time + timedelta(seconds=row["lease_seconds"])
                self._leases[key] = Lease(row["attempt"], row["lease_token"], until, event.ingest_time)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


WorkRow = Mapping[str, Any]
"""A row as folds write it: ids as decimal strings, times as RFC 3339 text, without what heartbeats move."""


class WorkRows(Protocol):
    """The rows of one organization, as the events of its transitions leave them."""

    def apply(self, event: Event) -> None:
        """Change the rows as one event says; an event that makes no sound row raises."""
        ...

    def row(self, table: str, execution_id: int, row_id: str) -> WorkRow | None:
        """Return a row by its table and id; rows that belong to no execution have 0 for it."""
        ...

    def rows(self, table: str) -> Mapping[str, WorkRow]:
        """Return all rows of a table by names that no two of them share."""
        ...

    def touched(self, event: Event) -> Iterable[tuple[str, int, str]]:
        """Return the rows with a lease that an event may speak of, as `row` names them."""
        ...


NewRows = Callable[[], WorkRows]
"""Makes the rows of an organization that has none yet."""
