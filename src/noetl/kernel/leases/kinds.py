"""Every kind of row that is leased, declared once: where it is, how it is named, when it is free and when it is held.

The predicates are what indexes of the schema are made for; a change here is a change of query plans.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

CLOCK: Final = "clock_timestamp()"
"""Leases last by the database's clock, read when a row is looked at."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of leased row, and the conditions on it as SQL.

    The conditions take the name the row has in a statement (`AS t`); without one they name bare columns.
    """

    table: str
    key: tuple[tuple[str, str], ...]
    """What names a row within its organization: columns and their types."""
    holder: str | None = "worker"
    attempt: str = "attempt"
    token: str = "lease_token"  # noqa: S105 - a column
    until: str = "lease_until"
    heartbeat: str | None = "last_heartbeat"
    seconds: str | None = None
    """The column that has the length of a lease; without one, each renewal says it."""
    waits: tuple[str, ...] = ()
    """Statuses of a row that waits for a holder; none where the other conditions tell."""
    holds: tuple[str, ...] = ()
    """Statuses of a row that has a holder; none where the other conditions tell."""
    due: str | None = None
    """The column that says from when on a row may be claimed."""
    clock: str = CLOCK
    """What `due` is compared with."""
    free_by: Literal["status", "token", "time"]
    """What else tells that nobody holds a row: its status alone, no token, or no time that is still to come."""
    order: tuple[str, ...]
    """Which of several free rows is claimed first."""
    fence: Literal["command", "frame", "task"] | None = None
    """What fences of transitions call it, where its changes are fenced."""
    locked_in: str | None = None
    """The order in which fences lock its rows. Renewals keep it, or a heartbeat and a commit could wait for each other."""
    kept_by: Literal["SHARE", "KEY SHARE"] | None = None
    """The lock by which a holder keeps its row for a transaction: it stops claims, and heartbeats only if it must."""

    def waiting(self, row: str = "") -> str:
        """Nobody holds it, and somebody will, now or later."""
        due = f"{_of(row)}{self.due} IS NOT NULL" if self.due else ""
        return _all(self._status(self.waits, row), due, self.unheld(row))

    def free(self, row: str = "", now: str | None = None) -> str:
        """Nobody holds it, and it may be claimed now."""
        due = f"{_of(row)}{self.due} <= {now or self.clock}" if self.due else ""
        return _all(self._status(self.waits, row), due, self.unheld(row, now or CLOCK))

    def unheld(self, row: str = "", now: str = CLOCK) -> str:
        """Nobody holds it, whether it waits or not; nothing to say where the status tells."""
        if self.free_by == "token":
            return f"{_of(row)}{self.token} IS NULL"
        if self.free_by == "time":
            return f"({_of(row)}{self.until} IS NULL OR {_of(row)}{self.until} <= {now})"
        return ""

    def held(self, row: str = "") -> str:
        """Somebody holds it, or held it and was not replaced."""
        return self._status(self.holds, row) or f"{_of(row)}{self.token} IS NOT NULL"

    def lasts(self, row: str = "") -> str:
        """Its lease lasts."""
        return f"{_of(row)}{self.until} > {CLOCK}"

    def ran_out(self, row: str = "", now: str = CLOCK) -> str:
        """Its lease does not last any longer."""
        return f"{_of(row)}{self.until} <= {now}"

    def lasting(self, row: str = "") -> str:
        """Somebody holds it, and the lease lasts."""
        return f"{self.held(row)} AND {self.lasts(row)}"

    def expired(self, row: str = "", now: str = CLOCK) -> str:
        """Somebody held it, and the lease does not last any longer."""
        return f"{self.held(row)} AND {self.ran_out(row, now)}"

    def first(self, row: str = "") -> str:
        """Return the order of claims."""
        return ", ".join(_of(row) + name for name in self.order)

    def _status(self, among: tuple[str, ...], row: str) -> str:
        named = ", ".join(f"'{one}'" for one in among)
        if len(among) > 1:
            return f"{_of(row)}status IN ({named})"
        return f"{_of(row)}status = {named}" if among else ""


def _of(row: str) -> str:
    return f"{row}." if row else ""


def _all(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions))


COMMAND: Final = Kind(
    table="command",
    key=(("execution_id", "bigint"), ("command_id", "text")),
    seconds="lease_seconds",
    waits=("PENDING",),
    holds=("CLAIMED",),
    due="available_at",
    clock="now()",
    free_by="status",
    order=("available_at", "issued_event_id"),
    fence="command",
    locked_in="known.execution_id, known.command_id",
)
FRAME: Final = Kind(
    table="frame",
    key=(("execution_id", "bigint"), ("frame_id", "bigint")),
    seconds="lease_seconds",
    waits=("FREE",),
    holds=("LEASED",),
    free_by="status",
    order=("frame_index",),
    fence="frame",
    locked_in='known.execution_id, known.frame_id::text COLLATE "C"',
)
TASK: Final = Kind(
    table="task",
    key=(("task_id", "uuid"),),
    seconds="lease_seconds",
    holds=("Running",),
    due="available_at",
    free_by="token",
    order=("available_at", "created_event_id"),
    fence="task",
    locked_in="known.task_id",
)
OUTBOX: Final = Kind(
    table="outbox",
    key=(("outbox_id", "uuid"),),
    holder=None,
    attempt="attempts",
    heartbeat=None,
    waits=("Pending",),
    holds=("Pending",),
    due="available_at",
    free_by="time",
    order=("available_at",),
)
SLOT: Final = Kind(
    table="cron_slot",
    key=(("schedule_id", "uuid"), ("plan_time", "timestamptz")),
    holder="runner",
    holds=("RUNNING",),
    due="next_retry_at",
    free_by="status",
    order=("next_retry_at",),
)
DELIVERY: Final = Kind(
    table="delivery",
    key=(("delivery_id", "uuid"),),
    waits=("Pending",),
    holds=("Sending",),
    due="available_at",
    free_by="status",
    order=("available_at",),
)
VIEW: Final = Kind(
    table="view_version",
    key=(("version_id", "uuid"),),
    waits=("building", "current"),
    holds=("building", "current"),
    due="available_at",
    free_by="time",
    order=("available_at",),
    # A claim changes no key, so nothing weaker would make it wait.
    kept_by="SHARE",
)
SHARD: Final = Kind(
    table="shard_lease",
    key=(("role", "text"), ("shard", "smallint")),
    holder="holder",
    heartbeat="heartbeat_at",
    free_by="time",
    order=("shard",),
    # Claims lock FOR UPDATE and wait for it; renewals do not, so that they go on beside long writes.
    kept_by="KEY SHARE",
)

KINDS: Final = (COMMAND, FRAME, TASK, OUTBOX, SLOT, DELIVERY, VIEW, SHARD)
