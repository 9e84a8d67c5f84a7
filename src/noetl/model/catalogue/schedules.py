"""The event types of schedules and their slots, all on `schedule/<schedule_id>`. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType


class ScheduleSet(msgspec.Struct, frozen=True):
    """What the schedule is called, when it is due, how its slots are run, and the first moment it is due at.

    Its context says what is started (`target`), and the waits between attempts (`retry_backoff`).
    """

    schedule_id: str
    name: str
    kind: Literal["platform", "source", "playbook"]
    scope_kind: str
    scope_id: str
    expression: str
    timezone: str
    mode: Literal["latest_only", "every_plan"]
    delay_seconds: int | float
    catch_up_seconds: int | float
    max_plans_per_tick: int
    run_timeout_seconds: int | float
    stale_timeout_seconds: int | float
    heartbeat_seconds: int | float
    max_attempts: int
    next_plan: str
    """Of a schedule that is paused: where it would go on."""
    allow_stale_reentry: bool = True
    by: str | None = None


class ScheduleResumed(msgspec.Struct, frozen=True):
    """The moment it goes on with, and who let it."""

    next_plan: str
    by: str | None = None


class ScheduleTold(msgspec.Struct, frozen=True):
    """Who did it."""

    by: str | None = None


class SlotClaimed(msgspec.Struct, frozen=True):
    """Who runs the slot, for the how-manieth time; `next_plan` where the schedule moves on with it."""

    plan_time: str
    attempt: int
    max_attempts: int
    worker: str
    lease_token: str
    lease_seconds: int | float
    next_plan: str | None = None
    manual: bool = False


class SlotSucceeded(msgspec.Struct, frozen=True):
    """What the run of a slot came to."""

    plan_time: str
    attempt: int
    run_id: str | None = None
    rows_affected: int | None = None
    skipped_reason: str | None = None


class SlotAttemptEnded(msgspec.Struct, frozen=True):
    """Which attempt came to nothing, and when the next may begin."""

    plan_time: str
    attempt: int
    error_code: str
    delay_seconds: int | float


class SlotFailed(msgspec.Struct, frozen=True):
    """Which attempt was the last."""

    plan_time: str
    attempt: int
    error_code: str


class SlotsSkipped(msgspec.Struct, frozen=True):
    """Which moments were passed over; `complete` is false where there were more than were counted."""

    reason: str
    count: int
    first_plan: str
    last_plan: str
    next_plan: str
    complete: bool = True


class SlotsPruned(msgspec.Struct, frozen=True):
    """Slots that ended before these times are no longer kept as rows."""

    succeeded_before: str
    failed_before: str


SCHEDULES_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="schedule.created",
        sentence="A schedule was made, or made again after it had been removed.",
        aggregate="schedule",
        meta=ScheduleSet,
        opens=("schedule",),
        changes=("schedule",),
    ),
    EventType(
        name="schedule.changed",
        sentence="A schedule was given another time, target or way to run.",
        aggregate="schedule",
        meta=ScheduleSet,
        changes=("schedule",),
    ),
    EventType(
        name="schedule.paused",
        sentence="A schedule was told to start nothing for now.",
        aggregate="schedule",
        meta=ScheduleTold,
        changes=("schedule",),
    ),
    EventType(
        name="schedule.resumed",
        sentence="A schedule that was paused goes on.",
        aggregate="schedule",
        meta=ScheduleResumed,
        changes=("schedule",),
    ),
    EventType(
        name="schedule.removed",
        sentence="A schedule was removed; what it started goes on.",
        aggregate="schedule",
        meta=ScheduleTold,
        changes=("schedule",),
    ),
    EventType(
        name="slot.claimed",
        sentence="A scheduler took a lease on a planned moment.",
        aggregate="schedule",
        meta=SlotClaimed,
        opens=("cron_slot",),
        changes=("cron_slot", "schedule"),
    ),
    EventType(
        name="slot.succeeded",
        sentence="A slot did what it was planned for.",
        aggregate="schedule",
        meta=SlotSucceeded,
        changes=("cron_slot", "schedule"),
    ),
    EventType(
        name="slot.attempt_failed",
        sentence="One attempt at a slot failed; another follows.",
        aggregate="schedule",
        meta=SlotAttemptEnded,
        changes=("cron_slot", "schedule"),
    ),
    EventType(
        name="slot.abandoned",
        sentence="The lease on a slot ran out; another attempt follows.",
        aggregate="schedule",
        meta=SlotAttemptEnded,
        changes=("cron_slot", "schedule"),
    ),
    EventType(
        name="slot.failed",
        sentence="A slot failed for good.",
        aggregate="schedule",
        meta=SlotFailed,
        changes=("cron_slot", "schedule"),
    ),
    EventType(
        name="slot.skipped",
        sentence="Planned moments were passed over, how many and why.",
        aggregate="schedule",
        meta=SlotsSkipped,
        changes=("schedule",),
    ),
    EventType(
        name="slot.pruned",
        sentence="Rows of slots that ended long ago were removed; their events stay.",
        aggregate="schedule",
        meta=SlotsPruned,
        changes=("schedule",),
        ends=("cron_slot",),
    ),
)
"""In the order a schedule meets them."""
