"""The list of executions for commands: filters go in, rows come out, the newest first.

It is read from the ledger, so that nothing has to be projected first. Those whose events were archived are found where
projections remember them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from noetl.api.execution_list import Listed, list_executions
from noetl.runtime.wiring import Runtime

_ARCHIVED: Final = """
SELECT e.execution_id::text AS execution_id, e.status, coalesce(c.path, e.state -> 'run' ->> 'path') AS path, c.version,
       e.start_time, e.end_time, e.error, e.parent_execution_id::text AS parent_execution_id
FROM noetl.execution AS e LEFT JOIN noetl.catalog AS c
    ON c.tenant_id = e.tenant_id AND c.organization_id = e.organization_id AND c.catalog_id = e.catalog_id
WHERE ($1::text IS NULL OR e.status = $1)
  AND ($2::text IS NULL OR starts_with(coalesce(c.path, e.state -> 'run' ->> 'path'), $2))
  AND EXISTS (SELECT FROM noetl.event_archive AS a WHERE a.dropped_at IS NOT NULL
              AND e.execution_id BETWEEN a.first_execution_id AND a.last_execution_id)
ORDER BY e.execution_id DESC LIMIT $3
"""


async def listed_executions(
    runtime: Runtime, status: str | None, under: str | None, limit: int
) -> list[dict[str, Any]]:
    """Return executions with a status whose paths begin so."""
    found: list[dict[str, Any]] = []
    cursor: int | None = None
    while len(found) < limit:
        page = await list_executions(
            runtime.database, runtime.scope, before=cursor, limit=limit - len(found), status=status, under=under
        )
        found += [_row(one) for one in page.executions]
        if page.next_cursor is None:
            async with runtime.database.transaction(runtime.scope) as connection:
                found += map(dict, await connection.fetch(_ARCHIVED, status, under, limit - len(found)))
            break
        cursor = int(page.next_cursor)
    now = datetime.now(UTC)
    return [{**one, "seconds": _seconds(one["start_time"], one["end_time"] or now)} for one in found]


def _row(one: Listed) -> dict[str, Any]:
    return {
        "execution_id": one.execution_id,
        "status": one.status,
        "path": one.path,
        "version": one.version,
        "start_time": one.requested_at,
        "end_time": one.ended_at,
        "error": one.error,
        "parent_execution_id": one.parent_execution_id,
    }


def _seconds(began: datetime | None, ended: datetime) -> float | None:
    return None if began is None else (ended - began).total_seconds()
