"""What the routes of schedules take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from noetl.api.wire import Body, Id, Name, View
from noetl.schedule.rows import ScheduleRow, SlotRow, SlotStatus
from noetl.schedule.spec import Kind, Mode

_ScheduleName = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[A-Za-z0-9_][A-Za-z0-9_./-]*$")]
_Seconds = Annotated[float, Meta(ge=0, le=31_622_400)]
_Limit = Annotated[int, Meta(ge=1, le=500)]


class SchedulesQuery(Body, frozen=True, kw_only=True):
    """Which schedules to list; `cursor` is the name of the last one of the page before."""

    cursor: _ScheduleName | None = None
    kind: Kind | None = None
    limit: _Limit = 100


class SlotsQuery(Body, frozen=True, kw_only=True):
    """Which slots to list: those planned before a time."""

    before: datetime | None = None
    limit: _Limit = 50


class ScheduleQuery(Body, frozen=True, kw_only=True):
    """How many of the next runs to tell."""

    coming: Annotated[int, Meta(ge=0, le=1000)] = 5


class ScheduleRequest(Body, frozen=True, kw_only=True):
    """When to start which playbook with which workload; cron fields or a rate such as rate(5 minutes)."""

    name: _ScheduleName
    playbook: Name
    expression: Annotated[str, Meta(min_length=1, max_length=200)]
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    workload: dict[str, Any] = msgspec.field(default_factory=dict)
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    mode: Mode = "latest_only"
    delay_seconds: _Seconds = 0.0
    catch_up_seconds: _Seconds = 86_400.0
    max_plans_per_tick: Annotated[int, Meta(ge=1, le=1000)] = 10
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 3
    retry_backoff: Annotated[list[_Seconds], Meta(max_length=100)] = msgspec.field(
        default_factory=lambda: [60.0, 300.0, 900.0]
    )


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule; `next_plan` is null while it is paused."""

    schedule_id: str
    name: str
    kind: Kind
    scope: str
    target: dict[str, Any]
    expression: str
    timezone: str
    mode: Mode
    delay_seconds: float
    catch_up_seconds: float
    max_plans_per_tick: int
    run_timeout_seconds: float
    stale_timeout_seconds: float
    heartbeat_seconds: float
    max_attempts: int
    retry_backoff: tuple[float, ...]
    allow_stale_reentry: bool
    paused: bool
    next_plan: datetime | None
    last_plan: datetime | None
    skipped: int
    created_at: datetime
    changed_at: datetime


class SlotView(View, frozen=True, kw_only=True):
    """One planned moment that was claimed; `run_id` is the execution it started."""

    plan_time: datetime
    status: SlotStatus
    stale: bool
    attempt: int
    max_attempts: int
    manual: bool
    run_id: Id | None
    next_retry_at: datetime | None
    runner: str | None
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None
    rows_affected: int | None
    result: dict[str, Any] | None
    error_code: str | None
    error: str | None
    skipped_reason: str | None


class ListedSchedule(ScheduleView, frozen=True, kw_only=True):
    """A schedule with its last slot."""

    last: SlotView | None


class ScheduleDetail(ScheduleView, frozen=True, kw_only=True):
    """A schedule with its next moments."""

    coming: list[datetime]


class SchedulePage(View, frozen=True, kw_only=True):
    """Schedules by name; `next_cursor` is null on the last page."""

    schedules: list[ListedSchedule]
    next_cursor: str | None


class SlotPage(View, frozen=True, kw_only=True):
    """Slots, the newest moment first; `next_before` is null on the last page."""

    slots: list[SlotView]
    next_before: datetime | None


class SchedulePut(ScheduleView, frozen=True, kw_only=True):
    """A schedule as it is now, and whether that was new."""

    changed: bool


def schedule_fields(row: ScheduleRow) -> dict[str, Any]:
    """Return what callers see of a schedule."""
    return {
        **msgspec.structs.asdict(row.spec),
        **{
            name: getattr(row, name)
            for name in ("schedule_id", "name", "kind", "target", "paused", "last_plan", "skipped", "created_at")
        },
        "changed_at": row.changed_at,
        "scope": f"{row.named.scope_kind}/{row.named.scope_id}",
        "next_plan": None if row.paused else row.next_plan,
    }


def slot_view(slot: SlotRow) -> SlotView:
    """Return what callers see of a slot."""
    fields = {name: getattr(slot, name) for name in SlotView.__struct_fields__}
    return SlotView(**{**fields, "run_id": None if slot.run_id is None else str(slot.run_id)})
