"""The rules of a lease, the same for every kind of work: who holds it, under which attempt and token, and until when.

Pure: the time is given. A holder proves itself by attempt and token with every later write; whoever cannot, holds
nothing any more, whatever it believes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from noetl.errors import LeaseLost


class Lease(msgspec.Struct, frozen=True):
    """A grant of work to one holder for a time."""

    holder: str
    attempt: int
    token: str
    until: datetime

    def expired(self, now: datetime) -> bool:
        """Tell whether the time is over: a lease does not include its last instant."""
        return now >= self.until

    def fence(self, attempt: int, token: str, now: datetime) -> None:
        """Let a holder write only under the attempt and token it was granted, and only while the lease lasts."""
        if (attempt, token) != (self.attempt, self.token):
            raise LeaseLost(f"the lease is held by {self.holder} under attempt {self.attempt}, not {attempt}")
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
