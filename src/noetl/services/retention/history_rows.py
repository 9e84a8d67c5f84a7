"""Rows of history that nobody decides by, counted by age. Only reads; `noetl.sweep_rows` alone deletes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from noetl.kernel.ledger.postgres.database import Connection
from noetl.services.retention.plan import Kind, Line, Sweep
from noetl.services.retention.policy import Policy

_DAYS: Final[dict[Kind, str]] = {
    "tasks": "task_days",
    "outbox": "outbox_days",
    "slots": "slot_days",
    "queries": "query_days",
}
_WHY: Final[dict[Kind, tuple[str, str]]] = {
    "tasks": ("ended, of generations that were purged", "of generations that are kept, not ended, or too young"),
    "outbox": ("done", "not done, or too young"),
    "slots": ("ended", "not ended, too young, or within a catch-up window"),
    "queries": ("asked", "too young"),
}
_COUNTS: Final[dict[Kind, str]] = {
    "tasks": """
SELECT count(*) AS all_rows, count(*) FILTER (WHERE t.ended_at < $1 AND t.available_at IS NULL
    AND t.generation IN (SELECT noetl.gone_generations())) AS old FROM noetl.task AS t
""",
    "outbox": """
SELECT count(*) AS all_rows,
       count(*) FILTER (WHERE status = 'Done' AND created_at < $1 AND processed_at < $1) AS old FROM noetl.outbox
""",
    "slots": """
SELECT count(*) AS all_rows, count(*) FILTER (WHERE c.status <> 'RUNNING' AND c.next_retry_at IS NULL
    AND c.finished_at < least($1, clock_timestamp() - make_interval(secs => s.catch_up_seconds))) AS old
FROM noetl.cron_slot AS c JOIN noetl.schedule AS s USING (tenant_id, organization_id, schedule_id)
""",
    "queries": """
SELECT count(*) AS all_rows, count(*) FILTER (WHERE asked_at < $1) AS old FROM noetl.query_audit
""",
}
# What ended within the time a schedule catches up is what keeps those moments from being run a second time.
_OLD_SLOTS: Final = """
SELECT c.schedule_id::text AS schedule_id, count(*) AS slots,
       least($1, clock_timestamp() - make_interval(secs => s.catch_up_seconds)) AS before
FROM noetl.cron_slot AS c JOIN noetl.schedule AS s USING (tenant_id, organization_id, schedule_id)
WHERE c.status <> 'RUNNING' AND c.next_retry_at IS NULL
  AND c.finished_at < least($1, clock_timestamp() - make_interval(secs => s.catch_up_seconds))
GROUP BY c.schedule_id, s.catch_up_seconds ORDER BY 1
"""


async def counted(connection: Connection, kind: Kind, policy: Policy, now: datetime) -> tuple[list[Line], Sweep | None]:
    """Return what of a kind goes and stays, and up to which age; no sweep if nothing goes."""
    days = getattr(policy, _DAYS[kind])
    until = now - timedelta(days=days or 0)
    row: Any = await connection.fetchrow(_COUNTS[kind], until)
    old = 0 if days is None else row["old"]
    goes, stays = _WHY[kind]
    if days is None:
        stays = "kept for ever"
    lines = [
        Line(kind=kind, subject="rows", action="remove", why=f"{goes}, older than {days} d", items=old),
        Line(kind=kind, subject="rows", action="keep", why=stays, items=row["all_rows"] - old),
    ]
    return [line for line in lines if line.items], Sweep(kind=kind, until=until, items=old) if old else None


async def old_slots(connection: Connection, until: datetime) -> list[tuple[str, datetime, int]]:
    """Return the schedules that have slots which may go: up to when they must have ended, and how many they are."""
    rows = await connection.fetch(_OLD_SLOTS, until)
    return [(row["schedule_id"], row["before"], row["slots"]) for row in rows]


SWEPT_KINDS: Final = tuple(_COUNTS)
"""The kinds that have rows."""
