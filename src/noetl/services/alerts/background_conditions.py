"""Conditions over what runs in the background: slots, checks, and how far behind things are. Only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from noetl.kernel.leases.kinds import COMMAND, TASK
from noetl.kernel.ledger.postgres.database import Connection
from noetl.language.alert.rule import Condition
from noetl.services.alerts.findings import Found

_SLOT_GRACE: Final = 60.0
"""Seconds a slot may wait for a scheduler before it counts as missed, unless the condition says otherwise."""

_OVERDUE: Final = """
SELECT s.name, s.next_plan, extract(epoch FROM clock_timestamp() - s.next_due)::float8 AS late
FROM noetl.schedule AS s
WHERE s.next_due < clock_timestamp() - make_interval(secs => $2) AND ($1::text IS NULL OR s.name = $1)
ORDER BY s.next_due LIMIT 200
"""
_SLOTS: Final = """
SELECT s.name, c.plan_time, c.status, c.error, c.execution_id,
       extract(epoch FROM c.started_at - c.plan_time)::float8 - s.delay_seconds AS late
FROM noetl.schedule AS s JOIN noetl.cron_slot AS c USING (tenant_id, organization_id, schedule_id)
WHERE ($1::text IS NULL OR s.name = $1) AND c.plan_time >= clock_timestamp() - make_interval(secs => $3)
  AND NOT c.manual AND ((c.status = 'FAILED' AND c.next_retry_at IS NULL)
    OR ($2::float8 IS NOT NULL AND c.attempt = 1
        AND c.started_at > c.plan_time + make_interval(secs => s.delay_seconds + $2)))
ORDER BY c.plan_time LIMIT 1000
"""
_LAGS: Final[Mapping[str, str]] = {
    "projection": """
SELECT min(n.ingest_time) FROM noetl.shard AS s JOIN noetl.projection_checkpoint AS c USING (shard)
CROSS JOIN LATERAL (
    SELECT e.ingest_time FROM noetl.event AS e
    WHERE e.shard = s.shard AND e.position > c.position ORDER BY e.position LIMIT 1
) AS n WHERE c.position < s.position
""",
    "outbox": "SELECT min(available_at) FROM noetl.outbox WHERE status = 'Pending' AND available_at <= clock_timestamp()",
    "tasks": f"SELECT min(available_at) FROM noetl.task WHERE {TASK.free()}",  # noqa: S608
    "source": "SELECT min(next_due) FROM noetl.schedule WHERE kind = 'source' AND next_due <= clock_timestamp()",
}
_WORDS: Final[Mapping[str, str]] = {
    "projection": "projections are behind the ledger",
    "outbox": "what has to follow from events waits in the outbox",
    "tasks": "tasks wait for a worker",
    "source": "sources are not started",
}
_BROKEN: Final = """
SELECT stream_id, shard, position, event_id, code, message FROM noetl.broken_stream ORDER BY stream_id LIMIT 1000
"""
_AWAY_GRACE: Final = 60.0
"""Seconds work may wait for a part of the platform before somebody is told, unless the condition says otherwise."""
# What a command's holder told last stands at the end of the command's own stream.
_AWAY: Final = f"""
SELECT told.meta ->> 'part' AS part, count(*) AS commands, max(told.error) AS error, min(c.execution_id) AS execution_id,
       extract(epoch FROM clock_timestamp() - min(told.event_time))::float8 AS seconds
FROM noetl.command AS c CROSS JOIN LATERAL (
    SELECT e.event_type, e.event_time, e.meta, e.error FROM noetl.known_event AS e
    WHERE e.stream_id = 'execution/' || c.execution_id || '/command/' || c.issued_event_id
      AND e.execution_id = c.execution_id ORDER BY e.stream_version DESC LIMIT 1
) AS told
WHERE {COMMAND.held("c")} AND told.event_type = 'command.stalled'
  AND told.event_time <= clock_timestamp() - make_interval(secs => $1)
GROUP BY 1 ORDER BY 1
"""  # noqa: S608
# The last task of each partition tells; its checks stand in the event that ended it.
_CHECKS: Final = """
WITH own AS (
    SELECT DISTINCT j.generation, j.dag, j.name FROM noetl.job AS j
    JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
    WHERE v.status IN ('building', 'failed', 'ready', 'active') AND ($1::text IS NULL OR j.dag = $1)
      AND ($2::text IS NULL OR j.name = $2)
      AND (j.operator = 'quality_check' OR jsonb_array_length(coalesce(j.definition -> 'checks', '[]')) > 0
           OR jsonb_path_exists(j.definition, '$.schema.columns[*].nullable ? (@ == false)'))
), last AS (
    SELECT own.dag, own.name AS job, t.partition_key, t.task_id, t.execution_id
    FROM own CROSS JOIN LATERAL (
        SELECT DISTINCT ON (t.partition_key) t.partition_key, t.task_id, t.execution_id, t.ended_at
        FROM noetl.task AS t WHERE t.generation = own.generation AND t.ended_at IS NOT NULL
          AND t.status IN ('Completed', 'Failed')
        ORDER BY t.partition_key, t.ended_at DESC
    ) AS t WHERE t.ended_at >= clock_timestamp() - make_interval(secs => $3)
)
SELECT last.dag, last.job, last.partition_key, last.task_id::text AS task_id, last.execution_id, told.checks
FROM last CROSS JOIN LATERAL (
    SELECT e.context -> 'checks' AS checks FROM noetl.event AS e
    WHERE e.stream_id = 'task/' || last.task_id AND e.execution_id = last.execution_id
      AND e.event_type IN ('task.completed', 'task.failed') ORDER BY e.stream_version DESC LIMIT 1
) AS told WHERE told.checks IS NOT NULL ORDER BY last.dag, last.job, last.partition_key
"""


async def slot_missed(connection: Connection, condition: Condition, said: Callable[[float], str]) -> tuple[Found, ...]:
    """Return planned moments that nobody started in time, or that failed for good."""
    grace = condition.later_than
    overdue = await connection.fetch(_OVERDUE, condition.schedule, _SLOT_GRACE if grace is None else grace)
    slots = await connection.fetch(_SLOTS, condition.schedule, grace, condition.lookback)
    waiting = [
        Found(
            subject=row["name"],
            period=row["next_plan"].isoformat(),
            title=f"{row['name']} was not started",
            message=f"the slot of {row['next_plan']:%Y-%m-%d %H:%M:%S} UTC is late by {said(row['late'])}",
            once=True,
        )
        for row in overdue
    ]
    return (*waiting, *(_slot(row, said) for row in slots))


def _slot(row: Any, said: Callable[[float], str]) -> Found:
    when = f"the slot of {row['plan_time']:%Y-%m-%d %H:%M:%S} UTC"
    failed = row["status"] == "FAILED"
    return Found(
        subject=row["name"],
        period=row["plan_time"].isoformat(),
        title=f"{row['name']} {'failed' if failed else 'was started late'}",
        message=f"{when} failed for good: {row['error']}" if failed else f"{when} was late by {said(row['late'])}",
        about=row["execution_id"],
        once=True,
    )


async def lag(connection: Connection, condition: Condition, said: Callable[[float], str]) -> tuple[Found, ...]:
    """Return what is further behind than it may be."""
    limit, found = condition.lag_over or 0.0, []
    for name, query in _LAGS.items():
        if condition.of not in (None, name):
            continue
        asked = f"SELECT extract(epoch FROM clock_timestamp() - ({query}))::float8"  # noqa: S608
        behind = await connection.fetchval(asked)
        if behind is not None and behind > limit:
            message = f"they are behind by {said(behind)}, and {said(limit)} are allowed"
            found.append(Found(subject=name, title=_WORDS[name], message=message))
    return tuple(found)


async def stream_broken(connection: Connection) -> tuple[Found, ...]:
    """Return the streams whose rows stand still, since fields of an event cannot be read."""
    return tuple(
        Found(
            subject=row["stream_id"],
            title=f"projections of {row['stream_id']} stand still",
            message=f"event {row['event_id']} at position {row['position']} of shard {row['shard']} cannot be folded: "
            f"{row['code']}: {row['message']}",
        )
        for row in await connection.fetch(_BROKEN)
    )


async def platform_away(
    connection: Connection, condition: Condition, said: Callable[[float], str]
) -> tuple[Found, ...]:
    """Return the parts of the platform that work has waited for longer than it may."""
    grace = condition.later_than
    rows = await connection.fetch(_AWAY, _AWAY_GRACE if grace is None else grace)
    return tuple(
        Found(
            subject=row["part"],
            title=f"work waits for the {row['part']}",
            message=f"commands that wait for it: {row['commands']}, the longest for {said(row['seconds'])}: {row['error']}",
            about=row["execution_id"],
        )
        for row in rows
    )


async def check_failed(connection: Connection, condition: Condition) -> tuple[Found, ...]:
    """Return the checks that the last task of a partition broke."""
    rows = await connection.fetch(_CHECKS, condition.dag, condition.job, condition.lookback)
    return tuple(
        Found(
            subject=f"{row['dag']}.{row['job']} {row['partition_key']} {check['label']}",
            title=f"check {check['label']} of {row['dag']}.{row['job']} is broken",
            message=f"partition {row['partition_key']}: {check.get('detail') or 'it does not hold'}",
            about=row["execution_id"],
        )
        for row in rows
        for check in orjson.loads(row["checks"])
        if not check["passed"]
    )
