"""What a scheduler does next: a schedule, its slots and the database's time go in, decisions come out. Pure.

`next_plan` only ever moves forward, so no moment is claimed twice, however the clock is set: one that is set forward lets
moments come early, one that is set back lets nothing happen until it has caught up.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from noetl.services.schedule.cron import next_after, timetable
from noetl.services.schedule.spec import Spec

_TICK: Final = timedelta(microseconds=1)

SkipReason = Literal["catch_up_window", "latest_only", "stands_already"]


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """Moments that are passed over, from the first to the last, and why; `complete` unless there are more than counted."""

    reason: SkipReason
    count: int
    first: datetime
    last: datetime
    complete: bool = True


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The moments to claim now, the oldest first, those to pass over, and the first that is left for later."""

    plans: tuple[datetime, ...]
    skips: tuple[Skip, ...]
    next_plan: datetime


def plan(spec: Spec, next_plan: datetime, now: datetime) -> Plan | None:
    """Decide what to do about a schedule whose first moment that nobody decided about is `next_plan`; None if it is early."""
    eligible = now - timedelta(seconds=spec.delay_seconds)
    if next_plan > eligible:
        return None
    coming = following(spec, next_plan)
    if coming > eligible and next_plan >= eligible - timedelta(seconds=spec.catch_up_seconds):
        # Nothing was missed, as nearly always.
        return Plan(plans=(next_plan,), skips=(), next_plan=coming)
    return _missed(spec, next_plan, eligible)


def _missed(spec: Spec, first: datetime, eligible: datetime) -> Plan:
    skips: list[Skip] = []
    oldest = eligible - timedelta(seconds=spec.catch_up_seconds)
    if first < oldest:
        kept = following(spec, oldest - _TICK)
        skips.append(_skip(spec, "catch_up_window", first, kept))
        first = kept
        if first > eligible:
            return Plan(plans=(), skips=tuple(skips), next_plan=first)
    if spec.mode == "latest_only":
        newest = timetable(spec.expression, spec.timezone).latest(eligible)
        if newest is not None and newest > first:
            skips.append(_skip(spec, "latest_only", first, newest))
            first = newest
        return Plan(plans=(first,), skips=tuple(skips), next_plan=following(spec, first))
    plans = [first]
    coming = following(spec, first)
    while coming <= eligible and len(plans) < spec.max_plans_per_tick:
        plans.append(coming)
        coming = following(spec, coming)
    return Plan(plans=tuple(plans), skips=tuple(skips), next_plan=coming)


def _skip(spec: Spec, reason: SkipReason, first: datetime, kept: datetime) -> Skip:
    moments = timetable(spec.expression, spec.timezone)
    count, complete = moments.count(first, kept)
    last = moments.latest(kept - _TICK) or first
    return Skip(reason=reason, count=count, first=first, last=last, complete=complete)


def following(spec: Spec, moment: datetime) -> datetime:
    """Return the first moment of a schedule after another."""
    return next_after(spec.expression, spec.timezone, moment)


def first_plan(spec: Spec, now: datetime, decided: datetime | None = None) -> datetime:
    """Return where a schedule begins, or goes on after it stood still: after now, and after what was decided before."""
    return following(spec, now if decided is None else max(now, decided))


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about a slot that stands: `next_retry_at` of one that failed for good is None."""

    plan_time: datetime
    status: Literal["RUNNING", "SUCCESS", "FAILED"]
    attempt: int
    max_attempts: int
    next_retry_at: datetime | None = None
    lease_until: datetime | None = None


Verdict = Literal["retry", "stale_retry", "stale_failed", "too_old"]


def verdict(spec: Spec, slot: SlotFacts, now: datetime) -> Verdict | None:
    """Decide about a slot: try it again, take it from a runner that was lost, or give it up; None leaves it alone.

    Each slot is decided about for itself: a newer one never hides an older one that failed.
    """
    if slot.status == "RUNNING":
        if slot.lease_until is None or slot.lease_until > now:
            return None
        retried = spec.allow_stale_reentry and retry_delay(spec, slot.attempt, slot.max_attempts) is not None
        return "stale_retry" if retried else "stale_failed"
    if slot.status != "FAILED" or slot.next_retry_at is None or slot.next_retry_at > now:
        return None
    oldest = now - timedelta(seconds=spec.delay_seconds + spec.catch_up_seconds)
    return "retry" if slot.plan_time >= oldest else "too_old"


def retry_delay(spec: Spec, attempt: int, max_attempts: int) -> float | None:
    """Return how long to wait after an attempt failed; None if it was the last, or none is to follow a failure."""
    if attempt >= max_attempts or not spec.retry_backoff:
        return None
    return spec.retry_backoff[min(attempt, len(spec.retry_backoff)) - 1]
