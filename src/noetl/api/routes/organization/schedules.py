"""Schedules: what is started when, what was started, and the moments to come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from noetl.api.endpoint import READERS, WRITERS, Call, Routes
from noetl.api.wire import Body, Name, Version, View, combined, without_defaults
from noetl.errors import NotFound
from noetl.services.schedule.rows import ScheduleRow, SlotView
from noetl.services.schedule.schedules import Schedules, coming_plans
from noetl.services.schedule.spec import Definition, Kind, Mode, Named, Spec

routes = Routes("schedules")

RUN_SECONDS: Final = 20.0
"""How long a request waits for a slot that it wants run; starting something takes far less."""


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
    version: Version | None = None
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


if TYPE_CHECKING:
    _Timing = Spec
else:
    _Timing = without_defaults(Spec)


class ScheduleView(_Timing, frozen=True, kw_only=True):
    """A schedule; `next_plan` is null while it is paused."""

    schedule_id: str
    name: str
    kind: Kind
    scope: str
    target: dict[str, Any]
    paused: bool
    next_plan: datetime | None
    last_plan: datetime | None
    skipped: int
    created_at: datetime
    changed_at: datetime


Shown = TypeVar("Shown", bound=ScheduleView)


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

    slots: Sequence[SlotView]
    next_before: datetime | None


class SchedulePut(ScheduleView, frozen=True, kw_only=True):
    """A schedule as it is now, and whether that was new."""

    changed: bool


@routes.get("/api/schedules", READERS)
async def list_schedules(call: Call, query: SchedulesQuery) -> SchedulePage:
    """List schedules by name, each with its last slot."""
    found = await _schedules(call).listed(call.scope, query.kind, query.cursor or "", query.limit)
    return SchedulePage(
        schedules=[_view(ListedSchedule, row, last=last) for row, last in found],
        next_cursor=found[-1][0].name if len(found) == query.limit else None,
    )


@routes.post("/api/schedules", WRITERS, repeatable=True)
async def put_schedule(call: Call, body: ScheduleRequest) -> SchedulePut:
    """Start a playbook at times from now on; the schedule of the same name is changed, if there is one."""
    target = {"path": body.playbook, "workload": body.workload}
    await call.services.catalog.get(call.scope, body.playbook, body.version)
    definition = Definition(
        named=Named(name=body.name),
        kind="playbook",
        target=target if body.version is None else {**target, "version": body.version},
        spec=combined(Spec, body, retry_backoff=tuple(body.retry_backoff)),
    )
    row, changed = await _schedules(call).put(call.scope, definition, by=call.caller.name)
    _wake(call)
    return _view(SchedulePut, row, changed=changed)


@routes.get("/api/schedules/{name:path}/slots", READERS)
async def list_slots(call: Call, name: str, query: SlotsQuery) -> SlotPage:
    """List what a schedule ran, the newest moment first."""
    row = await _schedules(call).get(call.scope, name)
    slots = await _schedules(call).slots(call.scope, row.schedule_id, query.before, query.limit)
    return SlotPage(
        slots=slots,
        next_before=slots[-1].plan_time if len(slots) == query.limit else None,
    )


@routes.get("/api/schedules/{name:path}", READERS)
async def get_schedule(call: Call, name: str, query: ScheduleQuery) -> ScheduleDetail:
    """Return a schedule with its next moments."""
    row = await _schedules(call).get(call.scope, name)
    return _view(ScheduleDetail, row, coming=coming_plans(row, query.coming))


@routes.post("/api/schedules/{name:path}/run", WRITERS)
async def run_schedule(call: Call, name: str) -> SlotView:
    """Run a schedule now, whatever its time; its plan stays as it is. A slot that takes long is told while it runs."""
    scheduler = call.services.scheduler
    if scheduler is None:
        raise NotFound("this server runs no schedules", hint="ask one that was started as a server")
    held, ended = await scheduler.run_now(call.scope, name)
    with suppress(TimeoutError):
        async with asyncio.timeout(RUN_SECONDS):
            await ended.wait()
    return await scheduler.slot(held)


@routes.post("/api/schedules/{name:path}/pause", WRITERS, repeatable=True)
async def pause_schedule(call: Call, name: str) -> ScheduleView:
    """Let a schedule start nothing until it is resumed."""
    return _view(ScheduleView, await _schedules(call).pause(call.scope, name, by=call.caller.name))


@routes.post("/api/schedules/{name:path}/resume", WRITERS, repeatable=True)
async def resume_schedule(call: Call, name: str) -> ScheduleView:
    """Let a schedule go on with its next moment."""
    row = await _schedules(call).resume(call.scope, name, by=call.caller.name)
    _wake(call)
    return _view(ScheduleView, row)


@routes.delete("/api/schedules/{name:path}", WRITERS, status=204)
async def remove_schedule(call: Call, name: str) -> None:
    """Remove the schedule of a playbook; what it started goes on."""
    await _schedules(call).remove(call.scope, name, "playbook", by=call.caller.name)


def _view(kind: type[Shown], row: ScheduleRow, **own: Any) -> Shown:
    scope = f"{row.named.scope_kind}/{row.named.scope_id}"
    next_plan = None if row.paused else row.next_plan
    return combined(kind, row, row.spec, scope=scope, next_plan=next_plan, **own)


def _schedules(call: Call) -> Schedules:
    services = call.services
    return Schedules(services.database, services.ledger, services.mint_several, services.producer)


def _wake(call: Call) -> None:
    if call.services.scheduler is not None:
        call.services.scheduler.wake()
