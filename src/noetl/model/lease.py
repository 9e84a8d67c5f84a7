"""The rules of a lease, the same for every kind of work: who holds it, under which attempt and token, and until when.

Pure: the time is given. A holder proves itself by attempt and token with every later write; whoever cannot, holds
nothing any more, whatever it believes. `noetl.leases` keeps these rules in PostgreSQL, and a property test runs both.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from noetl.errors import LeaseLost


class Proof(msgspec.Struct, frozen=True):
    """What a holder shows with every later write: which row, and the attempt and token it was granted under."""

    key: tuple[Any, ...]
    attempt: int
    token: str


class Lease(msgspec.Struct, frozen=True):
    """A grant of work to one holder for a time."""

    holder: str
    attempt: int
    token: str
    until: datetime

    def expired(self, now: datetime) -> bool:
        """Tell whether the time is over: a lease does not include its last instant."""
        return now >= self.until

    def prove(self, attempt: int, token: str) -> None:
        """Let a holder pass only under the attempt and token it was granted; that the time is over does not matter."""
        if (attempt, token) != (self.attempt, self.token):
            raise LeaseLost(f"the lease is held by {self.holder} under attempt {self.attempt}, not {attempt}")

    def fence(self, attempt: int, token: str, now: datetime) -> None:
        """Let a holder write only under the attempt and token it was granted, and only while the lease lasts."""
        self.prove(attempt, token)
        if self.expired(now):
            raise LeaseLost(f"the lease of attempt {attempt} ran out at {self.until.isoformat()}")

    def renewed(self, now: datetime, length: timedelta) -> Lease:
        """Return the lease with a later end; never with an earlier one."""
        return msgspec.structs.replace(self, until=max(self.until, now + length))


def grant(before: Lease | None, holder: str, token: str, now: datetime, length: timedelta) -> Lease:
    """Grant work that is free: the first time under attempt 1, after an expired lease under the next attempt."""
    if before is not None and not before.expired(now):
        raise LeaseLost(f"the work is leased to {before.holder} until {before.until.isoformat()}")
    if before is not None and before.token == token:
        raise ValueError("a token is used for one grant only")
    return Lease(holder, 1 if before is None else before.attempt + 1, token, now + length)


class LeasedRow(msgspec.Struct, frozen=True):
    """A row that is leased again and again: how often it was granted, and to whom now, if to anybody.

    Each step returns the row after it; one that is refused raises `LeaseLost` and changes nothing.
    """

    attempt: int = 0
    lease: Lease | None = None

    def claimed(self, holder: str, token: str, now: datetime, length: timedelta) -> LeasedRow:
        """Grant the row to a holder, under the attempt after all that were granted before."""
        lease = grant(self.lease, holder, token, now, length)
        attempt = self.attempt + 1
        return LeasedRow(attempt, msgspec.structs.replace(lease, attempt=attempt))

    def fence(self, attempt: int, token: str, now: datetime) -> Lease:
        """Return the lease of a holder that may write now."""
        lease = self._held()
        lease.fence(attempt, token, now)
        return lease

    def renewed(self, attempt: int, token: str, now: datetime, length: timedelta) -> LeasedRow:
        """Let a lease last longer that has not run out."""
        return LeasedRow(self.attempt, self.fence(attempt, token, now).renewed(now, length))

    def given_back(self, attempt: int, token: str, now: datetime, *, late: bool) -> LeasedRow:
        """Take a lease back from its holder; `late` tells whether that stands after it ran out and nobody else got it."""
        lease = self._held()
        lease.prove(attempt, token)
        if not late:
            lease.fence(attempt, token, now)
        return LeasedRow(self.attempt)

    def reaped(self, now: datetime) -> LeasedRow:
        """Take back a lease that ran out."""
        lease = self._held()
        if not lease.expired(now):
            raise LeaseLost(f"the lease of {lease.holder} lasts until {lease.until.isoformat()}")
        return LeasedRow(self.attempt)

    def _held(self) -> Lease:
        if self.lease is None:
            raise LeaseLost("nobody holds the work")
        return self.lease
