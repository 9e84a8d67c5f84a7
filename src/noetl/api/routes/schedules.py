"""Schedules: what is started when, what was started, and the moments to come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from noetl.api.endpoint import READERS, WRITERS, Call, Routes
from noetl.api.routes.schedule_views import (
    ListedSchedule,
    ScheduleDetail,
    SchedulePage,
    SchedulePut,
    ScheduleQuery,
    ScheduleRequest,
    SchedulesQuery,
    ScheduleView,
    SlotPage,
    SlotsQuery,
    SlotView,
    schedule_fields,
    slot_view,
)
from noetl.errors import NotFound
from noetl.schedule.by_hand import Schedules, coming_plans
from noetl.schedule.spec import Definition, Named, Spec

routes = Routes("schedules")

RUN_SECONDS: Final = 20.0
"""How long a request waits for a slot that it wants run; starting something takes far less."""


@routes.get("/api/schedules", READERS)
async def list_schedules(call: Call, query: SchedulesQuery) -> SchedulePage:
    """List schedules by name, each with its last slot."""
    found = await _schedules(call).listed(call.scope, query.kind, query.cursor or "", query.limit)
    return SchedulePage(
        schedules=[
            ListedSchedule(**schedule_fields(row), last=None if last is None else slot_view(last))
            for row, last in found
        ],
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
        spec=Spec(
            expression=body.expression,
            timezone=body.timezone,
            mode=body.mode,
            delay_seconds=body.delay_seconds,
            catch_up_seconds=body.catch_up_seconds,
            max_plans_per_tick=body.max_plans_per_tick,
            max_attempts=body.max_attempts,
            retry_backoff=tuple(body.retry_backoff),
        ),
    )
    row, changed = await _schedules(call).put(call.scope, definition, by=call.caller.name)
    _wake(call)
    return SchedulePut(**schedule_fields(row), changed=changed)


@routes.get("/api/schedules/{name:path}/slots", READERS)
async def list_slots(call: Call, name: str, query: SlotsQuery) -> SlotPage:
    """List what a schedule ran, the newest moment first."""
    row = await _schedules(call).get(call.scope, name)
    slots = await _schedules(call).slots(call.scope, row.schedule_id, query.before, query.limit)
    return SlotPage(
        slots=[slot_view(slot) for slot in slots],
        next_before=slots[-1].plan_time if len(slots) == query.limit else None,
    )


@routes.get("/api/schedules/{name:path}", READERS)
async def get_schedule(call: Call, name: str, query: ScheduleQuery) -> ScheduleDetail:
    """Return a schedule with its next moments."""
    row = await _schedules(call).get(call.scope, name)
    return ScheduleDetail(**schedule_fields(row), coming=coming_plans(row, query.coming))


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
    return slot_view(await scheduler.slot(held))


@routes.post("/api/schedules/{name:path}/pause", WRITERS, repeatable=True)
async def pause_schedule(call: Call, name: str) -> ScheduleView:
    """Let a schedule start nothing until it is resumed."""
    return ScheduleView(**schedule_fields(await _schedules(call).pause(call.scope, name, by=call.caller.name)))


@routes.post("/api/schedules/{name:path}/resume", WRITERS, repeatable=True)
async def resume_schedule(call: Call, name: str) -> ScheduleView:
    """Let a schedule go on with its next moment."""
    row = await _schedules(call).resume(call.scope, name, by=call.caller.name)
    _wake(call)
    return ScheduleView(**schedule_fields(row))


@routes.delete("/api/schedules/{name:path}", WRITERS, status=204)
async def remove_schedule(call: Call, name: str) -> None:
    """Remove the schedule of a playbook; what it started goes on."""
    await _schedules(call).remove(call.scope, name, "playbook", by=call.caller.name)


def _schedules(call: Call) -> Schedules:
    services = call.services
    return Schedules(
        services.database, services.ledger, lambda count: [services.mint() for _ in range(count)], services.producer
    )


def _wake(call: Call) -> None:
    if call.services.scheduler is not None:
        call.services.scheduler.wake()
