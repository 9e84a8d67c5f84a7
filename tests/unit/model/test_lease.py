"""The rules of a lease at their edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noetl.errors import LeaseLost
from noetl.model.lease import grant

NOW = datetime(2026, 5, 16, 12, tzinfo=UTC)
LENGTH = timedelta(seconds=30)


def test_a_lease_ends_at_its_last_instant() -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    assert not lease.expired(NOW + LENGTH - timedelta(microseconds=1))
    assert lease.expired(NOW + LENGTH)


def test_work_under_a_live_lease_is_not_granted_again() -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    with pytest.raises(LeaseLost, match="leased to a"):
        grant(lease, "b", "t2", NOW, LENGTH)


def test_the_next_grant_has_the_next_attempt() -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    assert grant(lease, "b", "t2", NOW + LENGTH, LENGTH).attempt == 2


def test_a_token_is_used_once() -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    with pytest.raises(ValueError, match="one grant only"):
        grant(lease, "b", "t1", NOW + LENGTH, LENGTH)


@pytest.mark.parametrize(("attempt", "token"), [(2, "t1"), (1, "t2")])
def test_another_attempt_or_token_is_fenced_off(attempt: int, token: str) -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    lease.fence(1, "t1", NOW)
    with pytest.raises(LeaseLost, match="held by a"):
        lease.fence(attempt, token, NOW)


def test_an_expired_holder_is_fenced_off() -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    with pytest.raises(LeaseLost, match="ran out"):
        lease.fence(1, "t1", NOW + LENGTH)


def test_a_renewal_never_shortens_a_lease() -> None:
    lease = grant(None, "a", "t1", NOW, LENGTH)
    assert lease.renewed(NOW - LENGTH, LENGTH).until == lease.until
    assert lease.renewed(NOW + timedelta(seconds=5), LENGTH).until == NOW + timedelta(seconds=35)
