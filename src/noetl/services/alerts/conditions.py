"""Conditions over the ledger: a condition goes in, what it holds for in one organization comes out. Only reads.

Each kind of condition is a function of its own in `_KINDS`; times are the database's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from noetl.kernel.ledger.postgres.database import Connection
from noetl.language.alert.rule import Condition, On
from noetl.services.alerts.background_conditions import check_failed, lag, platform_away, slot_missed, stream_broken
from noetl.services.alerts.findings import Found

# Runs that others started are part of those, and told about only where the condition names their path.
_RUNS: Final = """
SELECT e.execution_id, coalesce(c.path, e.state -> 'run' ->> 'path') AS path, e.status, e.error, e.end_time,
       coalesce(e.start_time, to_timestamp(((e.execution_id >> 22) + 1704067200000) / 1000.0)) AS begun
FROM noetl.execution AS e LEFT JOIN noetl.catalog AS c
    ON c.tenant_id = e.tenant_id AND c.organization_id = e.organization_id AND c.catalog_id = e.catalog_id
WHERE e.status = ANY ($1) AND e.execution_id >= $2
  AND (e.parent_execution_id IS NULL OR $3::text IS NOT NULL)
  AND ($3::text IS NULL OR CASE WHEN right($3, 1) = '*'
      THEN starts_with(coalesce(c.path, e.state -> 'run' ->> 'path'), left($3, -1))
      ELSE coalesce(c.path, e.state -> 'run' ->> 'path') = $3 END)
"""
_FAILED: Final = f"{_RUNS} AND e.end_time >= clock_timestamp() - make_interval(secs => $4) ORDER BY e.execution_id"
_LATE: Final = f"""
SELECT r.*, extract(epoch FROM clock_timestamp() - r.begun)::float8 AS open_seconds FROM ({_RUNS}) AS r
WHERE r.begun < clock_timestamp() - make_interval(secs => $4) ORDER BY r.execution_id
"""  # noqa: S608
_LAST_WELL: Final = f"SELECT r.path, max(r.execution_id) AS last FROM ({_RUNS}) AS r GROUP BY r.path"  # noqa: S608
_ENDED_WELL: Final = f"SELECT max(r.end_time) FROM ({_RUNS}) AS r WHERE r.end_time >= $4 AND r.end_time < $5"  # noqa: S608

_LONGEST_RUN: Final = 32 * 86_400
"""A run that is found when it ends may have begun this much earlier, in seconds."""


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition holds for, and what was found before and is not over yet."""

    found: tuple[Found, ...]
    holds: tuple[Found, ...] | None = None
    """Those that still hold; what was found, unless told."""


async def look(connection: Connection, condition: Condition) -> Looked:
    """Return what a condition holds for now."""
    return await _KINDS[condition.on](connection, condition)


async def _run_failed(connection: Connection, condition: Condition) -> Looked:
    path, since = _path(condition), await _since(connection, condition.lookback + _LONGEST_RUN)
    rows = await connection.fetch(_FAILED, ["FAILED"], since, path, condition.lookback)
    if not rows:
        return Looked(found=())
    first = min(row["execution_id"] for row in rows)
    well = {row["path"]: row["last"] for row in await connection.fetch(_LAST_WELL, ["COMPLETED"], first, path)}
    found = [(row, _failed(row)) for row in rows]
    return Looked(
        found=tuple(one for _, one in found),
        holds=tuple(one for row, one in found if well.get(row["path"], 0) < row["execution_id"]),
    )


def _failed(row: Any) -> Found:
    return Found(
        subject=str(row["execution_id"]),
        title=f"{row['path'] or 'execution'} failed",
        message=f"execution {row['execution_id']} failed: {row['error'] or 'it did not say why'}",
        about=row["execution_id"],
        once=True,
    )


async def _run_late(connection: Connection, condition: Condition) -> Looked:
    if condition.finished_by is not None:
        return await _not_finished(connection, condition)
    rows = await connection.fetch(_LATE, ["PENDING", "RUNNING"], 0, _path(condition), condition.later_than)
    return Looked(
        found=tuple(
            Found(
                subject=str(row["execution_id"]),
                title=f"{row['path'] or 'execution'} is late",
                message=f"execution {row['execution_id']} is open for {_said(row['open_seconds'])},"
                f" and {_said(condition.later_than or 0)} are allowed",
                about=row["execution_id"],
            )
            for row in rows
        )
    )


async def _not_finished(connection: Connection, condition: Condition) -> Looked:
    """A run that must complete each day by some time: the day whose time has come last is looked at."""
    path, zone = _path(condition), ZoneInfo(condition.timezone)
    now: datetime = (await connection.fetchval("SELECT clock_timestamp()")).astimezone(zone)
    hour, minute = map(int, str(condition.finished_by).split(":"))
    day = now.date() if now >= _at(now, hour, minute) else now.date() - timedelta(days=1)
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    after = day + timedelta(days=1)
    end = datetime(after.year, after.month, after.day, tzinfo=zone)
    since = await _since(connection, 2 * 86_400 + _LONGEST_RUN)
    if await connection.fetchval(_ENDED_WELL, ["COMPLETED"], since, path, midnight, end) is not None:
        return Looked(found=())
    due = f"{day.isoformat()} {condition.finished_by} {condition.timezone}"
    return Looked(
        found=(
            Found(
                subject=str(path),
                period=day.isoformat(),
                title=f"{path} has not finished",
                message=f"no run of {path} completed on {day.isoformat()}; one was to be done by {due}",
            ),
        )
    )


def _at(now: datetime, hour: int, minute: int) -> datetime:
    return now.replace(hour=hour, minute=minute, second=0, microsecond=0)


def _path(condition: Condition) -> str | None:
    return condition.path if condition.dag is None else f"dag/{condition.dag}"


async def _since(connection: Connection, seconds: float) -> int:
    """Return the least id that may have been minted within so many seconds."""
    found = await connection.fetchval(
        "SELECT greatest(noetl.snowflake_at(clock_timestamp() - make_interval(secs => $1)), 0)", float(seconds)
    )
    return int(found)


def _said(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    words = [f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min"), (left, "s")) if number]
    return " ".join(words[:2]) or "0 s"


async def _lag(connection: Connection, condition: Condition) -> Looked:
    return Looked(found=await lag(connection, condition, _said))


async def _slot_missed(connection: Connection, condition: Condition) -> Looked:
    return Looked(found=await slot_missed(connection, condition, _said))


async def _check_failed(connection: Connection, condition: Condition) -> Looked:
    return Looked(found=await check_failed(connection, condition))


async def _platform_away(connection: Connection, condition: Condition) -> Looked:
    return Looked(found=await platform_away(connection, condition, _said))


async def _stream_broken(connection: Connection, _condition: Condition) -> Looked:
    return Looked(found=await stream_broken(connection))


_KINDS: Final[Mapping[On, Callable[[Connection, Condition], Awaitable[Looked]]]] = {
    "run_failed": _run_failed,
    "run_late": _run_late,
    "slot_missed": _slot_missed,
    "lag": _lag,
    "check_failed": _check_failed,
    "stream_broken": _stream_broken,
    "platform_away": _platform_away,
}
