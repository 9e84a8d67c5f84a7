"""The rows of schedules and their slots, from the events of `schedule/<schedule_id>`. Times of leases are not here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from noetl.kernel.projections.folds.fold import Row, copied, moment
from noetl.kernel.projections.folds.organization.tables import Tables, identity, later, number, part
from noetl.model.event import Event, parse_time

_TOLD: Final = ("name", "kind", "scope_kind", "scope_id", "expression", "timezone", "mode")
_SECONDS: Final = (
    "delay_seconds",
    "catch_up_seconds",
    "run_timeout_seconds",
    "stale_timeout_seconds",
    "heartbeat_seconds",
)
_WHOLE: Final = ("max_plans_per_tick", "max_attempts")
_NEVER_CHANGED: Final = ("name", "scope_kind", "scope_id")
_ENDED: Final = {
    "slot.succeeded": ("SUCCESS", False),
    "slot.attempt_failed": ("FAILED", True),
    "slot.abandoned": ("FAILED", True),
    "slot.failed": ("FAILED", False),
}
"""How a slot stands after an attempt, and whether another follows."""
_NOTHING_YET: Final = ("run_id", "finished_at", "duration_ms", "rows_affected", "result", "error_code", "error")


def _put(tables: Tables, event: Event) -> None:
    meta, at, schedule_id = event.meta, moment(event.ingest_time), _schedule_id(event)
    row: Row = {
        "schedule_id": schedule_id,
        **{name: meta[name] for name in (*_TOLD, *_WHOLE)},
        **{name: number(meta[name]) for name in _SECONDS},
        "allow_stale_reentry": meta.get("allow_stale_reentry", True),
        "target": part(event, "target", {}),
        "retry_backoff": part(event, "retry_backoff", []),
        "next_plan": _time(meta["next_plan"]),
        "changed_at": at,
        "removed_at": None,
        "version": event.stream_version,
    }
    known = tables["schedule"].get(schedule_id)
    if known is None:
        kept = {"paused": False, "last_plan": None, "skipped": 0, "created_at": at}
    else:
        kept = {name: known[name] for name in (*_NEVER_CHANGED, "last_plan", "skipped", "created_at")}
        kept["paused"] = known["paused"] and known["removed_at"] is None
    row |= kept
    row["next_due"] = None if row["paused"] else _due(row["next_plan"], row["delay_seconds"])
    tables.put("schedule", row)


def _move(tables: Tables, event: Event) -> None:
    known, meta, said = tables["schedule"].get(_schedule_id(event)), event.meta, event.event_type
    if known is None:
        return
    known["version"] = event.stream_version
    if said.startswith("schedule."):
        known["changed_at"] = moment(event.ingest_time)
    coming = _time(meta.get("next_plan"))
    if coming is not None:
        known |= {"next_plan": coming, "next_due": _due(coming, known["delay_seconds"])}
    if said in ("schedule.paused", "schedule.removed"):
        known["next_due"] = None
    if said in ("schedule.paused", "schedule.resumed"):
        known["paused"] = said == "schedule.paused"
    if said == "schedule.removed":
        known["removed_at"] = moment(event.ingest_time)
    if said == "slot.skipped":
        known["skipped"] += meta["count"]
    decided = meta.get("last_plan") if said == "slot.skipped" else coming and meta.get("plan_time")
    if decided:
        known["last_plan"] = max(known["last_plan"] or "", _time(decided) or "")


def _claimed(tables: Tables, event: Event) -> None:
    meta, at = event.meta, moment(event.ingest_time)
    leased: Row = {
        "status": "RUNNING",
        "attempt": meta["attempt"],
        "execution_id": str(event.execution_id),
        "next_retry_at": None,
        "runner": meta["worker"],
        "lease_token": identity(meta["lease_token"]),
        "started_at": at,
    }
    if meta["attempt"] > 1:
        known = _slot(tables, event)
        if known is not None:
            known |= leased | dict.fromkeys(("finished_at", "duration_ms", "error_code", "error"))
    else:
        tables.put(
            "cron_slot",
            {
                "schedule_id": _schedule_id(event),
                "plan_time": _time(meta["plan_time"]),
                "max_attempts": meta["max_attempts"],
                "manual": meta.get("manual", False),
                "skipped_reason": None,
                **dict.fromkeys(_NOTHING_YET),
                **leased,
            },
        )
    _move(tables, event)


def _ended(tables: Tables, event: Event) -> None:
    known, meta, (status, again) = _slot(tables, event), event.meta, _ENDED[event.event_type]
    if known is not None:
        taken = event.ingest_time - parse_time(known["started_at"])
        known |= {
            "status": status,
            "lease_token": None,
            "finished_at": moment(event.ingest_time),
            "duration_ms": max(0, taken // timedelta(milliseconds=1)),
            "next_retry_at": later(event, meta["delay_seconds"]) if again else None,
            "run_id": meta.get("run_id") or known["run_id"],
            "rows_affected": meta.get("rows_affected"),
            "result": copied(event.result) if status == "SUCCESS" else None,
            "skipped_reason": meta.get("skipped_reason"),
            "error_code": meta.get("error_code"),
            "error": event.error,
        }
    _move(tables, event)


def _pruned(tables: Tables, event: Event) -> None:
    own, slots = _schedule_id(event), tables["cron_slot"]
    before = {"SUCCESS": _time(event.meta["succeeded_before"]), "FAILED": _time(event.meta["failed_before"])}
    for key, row in list(slots.items()):
        limit = before.get(row["status"])
        if row["schedule_id"] == own and limit and row["finished_at"] < limit and row["next_retry_at"] is None:
            del slots[key]
    _move(tables, event)


def _slot(tables: Tables, event: Event) -> Row | None:
    return tables["cron_slot"].get(f"{_schedule_id(event)}|{_time(event.meta['plan_time'])}")


def _schedule_id(event: Event) -> str:
    return str(identity(event.stream_id.removeprefix("schedule/")))


def _time(text: Any) -> str | None:
    return None if text is None else moment(parse_time(text))


def _due(plan: str, delay_seconds: float) -> str:
    return moment(parse_time(plan) + timedelta(microseconds=round(delay_seconds * 1_000_000)))


SCHEDULES_CHANGES: Final[dict[str, Callable[[Tables, Event], None]]] = {
    "schedule.created": _put,
    "schedule.changed": _put,
    "schedule.paused": _move,
    "schedule.resumed": _move,
    "schedule.removed": _move,
    "slot.claimed": _claimed,
    **dict.fromkeys(_ENDED, _ended),
    "slot.skipped": _move,
    "slot.pruned": _pruned,
}
