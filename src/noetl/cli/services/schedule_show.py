"""What `noetl schedule` says of schedules and slots: as text for a person, as facts for a program."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from noetl.cli.terminal.tables import first_line, rendered

if TYPE_CHECKING:
    from noetl.model.stream import Scope
    from noetl.runtime.wiring import Runtime
    from noetl.services.schedule.rows import ScheduleRow, SlotRow
    from noetl.services.schedule.schedules import Schedules

_RUNS: Final = "SELECT execution_id, status FROM noetl.execution WHERE execution_id = ANY ($1)"


class Shown(NamedTuple):
    """One schedule with what it will do and did; `runs` are the statuses of what it started."""

    row: ScheduleRow
    coming: list[datetime]
    past: list[SlotRow]
    runs: dict[int, str]


async def shown(runtime: Runtime, schedules: Schedules, scope: Scope, name: str, limit: int, ahead: int) -> Shown:
    """Read all that is shown of a schedule."""
    from noetl.services.schedule.schedules import coming_plans

    row = await schedules.get(scope, name)
    past = await schedules.slots(scope, row.schedule_id, None, limit)
    async with runtime.database.transaction(scope) as connection:
        rows = await connection.fetch(_RUNS, [one.run_id for one in past if one.run_id is not None])
    runs = {found["execution_id"]: found["status"] for found in rows}
    return Shown(row, coming_plans(row, ahead), past, runs)


def schedule_facts(row: ScheduleRow, last: SlotRow | None) -> dict[str, Any]:
    """Return a schedule as plain values."""
    return {
        "name": row.name,
        "kind": row.kind,
        "schedule_id": row.schedule_id,
        "scope": f"{row.named.scope_kind}/{row.named.scope_id}",
        "target": row.target,
        **msgspec.to_builtins(row.spec),
        "paused": row.paused,
        "next_run": None if row.paused else row.next_plan.isoformat(),
        "skipped": row.skipped,
        "created_at": row.created_at.isoformat(),
        "last": None if last is None else slot_facts(last),
    }


def slot_facts(slot: SlotRow, runs: dict[int, str] | None = None) -> dict[str, Any]:
    """Return a slot as plain values."""
    facts = {name: getattr(slot, name) for name in slot.__struct_fields__}
    facts["run_id"] = None if slot.run_id is None else str(slot.run_id)
    for name, value in facts.items():
        if isinstance(value, datetime):
            facts[name] = value.isoformat()
    return facts if runs is None else {**facts, "run_status": runs.get(slot.run_id or 0)}


def shown_facts(found: Shown) -> dict[str, Any]:
    """Return everything shown as plain values."""
    facts = schedule_facts(found.row, None)
    del facts["last"]
    return {
        **facts,
        "coming": [moment.isoformat() for moment in found.coming],
        "past": [slot_facts(one, found.runs) for one in found.past],
    }


def schedules_table(found: Sequence[tuple[ScheduleRow, SlotRow | None]]) -> str:
    """Return schedules as a table."""
    rows = [
        (
            row.name,
            row.kind,
            when_text(row),
            "paused" if row.paused else moment_text(row.next_plan, row.spec.timezone),
            "" if last is None else moment_text(last.plan_time, row.spec.timezone),
            "" if last is None else status_text(last),
            what_text(row),
        )
        for row, last in found
    ]
    return rendered(("name", "kind", "when", "next run", "last run", "ended", "starts"), rows)


def shown_text(found: Shown) -> str:
    """Return everything shown as text."""
    row, zone = found.row, found.row.spec.timezone
    lines = [
        f"{row.name}: {what_text(row)}",
        f"  when      {when_text(row)}",
        f"  missed    {'all are run, oldest first' if row.spec.mode == 'every_plan' else 'only the newest is run'}, "
        f"none older than {row.spec.catch_up_seconds:g} s; {row.skipped} skipped so far",
        f"  attempts  {row.spec.max_attempts}, each up to {row.spec.run_timeout_seconds:g} s",
    ]
    if row.paused:
        lines.append("  paused; `noetl schedule resume` lets it go on")
    lines += [f"  next      {moment_text(one, zone)}" for one in found.coming]
    text = "\n".join(lines) + "\n"
    if not found.past:
        return f"{text}\nIt has not run yet.\n"
    return f"{text}\n{_past_table(found)}"


def _past_table(found: Shown) -> str:
    rows = [
        (
            moment_text(one.plan_time, found.row.spec.timezone),
            status_text(one),
            f"{one.attempt}/{one.max_attempts}",
            "" if one.duration_ms is None else f"{one.duration_ms / 1000:.2f} s",
            "" if one.run_id is None else str(one.run_id),
            "" if one.run_id is None else found.runs.get(one.run_id, "PENDING"),
            first_line(one.error or one.skipped_reason),
        )
        for one in found.past
    ]
    return rendered(("planned for", "ended", "attempt", "took", "started", "which is", "why"), rows)


def status_text(slot: SlotRow) -> str:
    """Say how a slot stands."""
    word = "stale" if slot.stale else {"RUNNING": "running", "SUCCESS": "ok", "FAILED": "failed"}[slot.status]
    if slot.skipped_reason is not None:
        word = "nothing to do"
    if slot.next_retry_at is not None:
        word = "failed, tried again"
    return f"{word}, by hand" if slot.manual else word


def what_text(row: ScheduleRow) -> str:
    """Say what a schedule starts."""
    target = row.target
    if row.kind == "playbook":
        version = target.get("version")
        return f"playbook {target['path']}" + ("" if version is None else f" version {version}")
    return f"source {target['job']} of DAG {target['dag']}" if row.kind == "source" else f"job {target['handler']}"


def when_text(row: ScheduleRow) -> str:
    """Say when a schedule is due."""
    spec = row.spec
    return spec.expression if spec.expression.startswith("rate") else f"{spec.expression} {spec.timezone}"


def moment_text(moment: datetime, zone: str) -> str:
    """Print a moment in a zone, as short as it is exact."""
    local = moment.astimezone(UTC if zone == "UTC" else ZoneInfo(zone)).replace(microsecond=0)
    return f"{local:%Y-%m-%d %H:%M} {local:%Z}" if not local.second else f"{local:%Y-%m-%d %H:%M:%S} {local:%Z}"


def put_sentence(row: ScheduleRow, *, changed: bool) -> str:
    """Say what became of a schedule that was created."""
    word = "is scheduled" if changed else "was scheduled so before"
    return f"{row.name} {word}; next run {moment_text(row.next_plan, row.spec.timezone)}"


def ran_sentence(name: str, slot: SlotRow, ended: str | None) -> str:
    """Say what a run by hand came to."""
    if slot.status != "SUCCESS":
        return f"{name} failed: {slot.error}"
    if slot.skipped_reason is not None:
        return f"{name} had nothing to do: {slot.skipped_reason}"
    if slot.run_id is None:
        rows = "" if slot.rows_affected is None else f": {slot.rows_affected} rows"
        return f"{name} ran{rows}"
    word = "started" if ended == "started" else f"started, which {str(ended).lower()}:"
    return f"{name} {word} execution {slot.run_id}"
