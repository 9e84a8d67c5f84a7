"""Schedules and slots as they stand in their rows, read as values."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from noetl.kernel.leases.kinds import SLOT
from noetl.model.ids import Id64
from noetl.model.stream import Scope
from noetl.services.schedule.planning import SlotFacts
from noetl.services.schedule.spec import Kind, Named, Spec

_decode = msgspec.json.Decoder().decode
SlotStatus = Literal["RUNNING", "SUCCESS", "FAILED"]

DUE_COLUMNS: Final = """
c.tenant_id, c.organization_id, c.schedule_id::text AS schedule_id, c.name, c.kind, c.target::text AS target,
c.expression, c.timezone, c.mode, c.delay_seconds, c.catch_up_seconds, c.max_plans_per_tick, c.run_timeout_seconds,
c.stale_timeout_seconds, c.heartbeat_seconds, c.max_attempts, c.retry_backoff::text AS retry_backoff,
c.allow_stale_reentry, c.next_plan, c.version, c.removed_at
"""
SCHEDULE_COLUMNS: Final = f"""
{DUE_COLUMNS}, c.scope_kind, c.scope_id, c.paused, c.next_due, c.last_plan, c.skipped, c.created_at, c.changed_at
"""
SLOT_COLUMNS: Final = f"""
s.schedule_id::text AS schedule_id, s.plan_time, s.status, s.attempt, s.max_attempts, s.manual, s.run_id,
s.next_retry_at, s.runner, s.lease_until, s.last_heartbeat, s.started_at, s.finished_at, s.duration_ms, s.rows_affected,
s.result::text AS result, s.error_code, s.error, s.skipped_reason,
{SLOT.expired("s", now="now()")} AS stale
"""


class DueRow(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a schedule as a scheduler needs; `version` is its stream's."""

    scope: Scope
    schedule_id: str
    name: str
    kind: Kind
    target: dict[str, Any]
    spec: Spec
    next_plan: datetime
    version: int
    removed_at: datetime | None


class ScheduleRow(DueRow, frozen=True, kw_only=True):
    """One schedule."""

    named: Named
    paused: bool
    next_due: datetime | None
    last_plan: datetime | None
    skipped: int
    created_at: datetime
    changed_at: datetime


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """One planned moment that was claimed; `run_id` is the execution it started."""

    plan_time: datetime
    status: SlotStatus
    stale: bool
    """Whether its runner was lost and nobody has taken it back yet."""
    attempt: int
    max_attempts: int
    manual: bool
    run_id: Id64 | None
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


class SlotRow(SlotView, frozen=True, kw_only=True):
    """One slot as its row has it, with its schedule and its lease."""

    schedule_id: str
    lease_until: datetime | None
    last_heartbeat: datetime | None

    @property
    def facts(self) -> SlotFacts:
        """What decides about it."""
        return SlotFacts(
            plan_time=self.plan_time,
            status=self.status,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            next_retry_at=self.next_retry_at,
            lease_until=self.lease_until,
        )


def as_due(row: Any) -> DueRow:
    """Read a schedule that was selected with the columns a scheduler needs."""
    return DueRow(
        scope=Scope(row["tenant_id"], row["organization_id"]),
        schedule_id=row["schedule_id"],
        name=row["name"],
        kind=row["kind"],
        target=_decode(row["target"]),
        spec=spec_of(row),
        next_plan=row["next_plan"],
        version=row["version"],
        removed_at=row["removed_at"],
    )


def as_schedule(row: Any) -> ScheduleRow:
    """Read a schedule that was selected with its columns."""
    return ScheduleRow(
        scope=Scope(row["tenant_id"], row["organization_id"]),
        schedule_id=row["schedule_id"],
        name=row["name"],
        named=Named(name=row["name"], scope_kind=row["scope_kind"], scope_id=row["scope_id"]),
        kind=row["kind"],
        target=_decode(row["target"]),
        spec=spec_of(row),
        paused=row["paused"],
        next_plan=row["next_plan"],
        next_due=row["next_due"],
        last_plan=row["last_plan"],
        skipped=row["skipped"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
        removed_at=row["removed_at"],
        version=row["version"],
    )


def spec_of(row: Any) -> Spec:
    """Read how a schedule is run."""
    return Spec(
        expression=row["expression"],
        timezone=row["timezone"],
        mode=row["mode"],
        delay_seconds=row["delay_seconds"],
        catch_up_seconds=row["catch_up_seconds"],
        max_plans_per_tick=row["max_plans_per_tick"],
        run_timeout_seconds=row["run_timeout_seconds"],
        stale_timeout_seconds=row["stale_timeout_seconds"],
        heartbeat_seconds=row["heartbeat_seconds"],
        max_attempts=row["max_attempts"],
        retry_backoff=_waits(row["retry_backoff"]),
        allow_stale_reentry=row["allow_stale_reentry"],
    )


@lru_cache(1024)
def _waits(text: str) -> tuple[float, ...]:
    return tuple(_decode(text))


def as_slot(row: Any) -> SlotRow:
    """Read a slot that was selected with its columns."""
    result = row["result"]
    fields = {name: row[name] for name in SlotRow.__struct_fields__}
    return SlotRow(**{**fields, "result": None if result is None else _decode(result)})
