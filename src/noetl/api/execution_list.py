"""The list of executions, read from the ledger itself: filters and a cursor go in, a page with the next cursor comes out.

Whether an execution runs is told by the rows of open work, which are written with its events, so the list and the single
view never disagree. Of each execution only its first and its last events are read, however many it has.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from noetl.api.wire import View
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.catalogue import ENDING
from noetl.model.ids import MAX_ID, ROOT_ID_LIMIT
from noetl.model.stream import Scope

_CHUNK = 200
_MOST_SCANNED = 2_000
"""Executions looked at for one page; a rare filter gives an empty page with a cursor to go on from."""

_PAGE = """
SELECT s.execution_id, first.catalog_id, first.parent_execution_id, first.event_time AS requested_at, first.meta,
       coalesce(last.event_type, late.event_type) AS ended_with, coalesce(last.event_time, late.event_time) AS ended_at,
       coalesce(last.error, late.error) AS error
FROM (
    SELECT execution_id, stream_id, version FROM noetl.stream
    WHERE execution_id >= $1 AND execution_id < $2 AND version > 0 AND stream_id = 'execution/' || execution_id::text
    ORDER BY execution_id DESC LIMIT $3
) AS s
LEFT JOIN noetl.event AS first
    ON first.execution_id = s.execution_id AND first.stream_id = s.stream_id AND first.stream_version = 1
LEFT JOIN noetl.execution_head AS h ON h.execution_id = s.execution_id
LEFT JOIN LATERAL (
    SELECT e.event_type, e.event_time, e.error FROM noetl.event AS e
    WHERE h.execution_id IS NULL AND e.execution_id = s.execution_id AND e.stream_id = s.stream_id
      AND e.stream_version = s.version AND e.event_type = ANY ($4) LIMIT 1
) AS last ON true
LEFT JOIN LATERAL (
    -- The run of a DAG is short, and something may follow its end.
    SELECT e.event_type, e.event_time, e.error FROM noetl.event AS e
    WHERE first.meta ->> 'playbook_digest' IS NULL AND e.execution_id = s.execution_id AND e.stream_id = s.stream_id
      AND e.event_type = ANY ($4) ORDER BY e.stream_version DESC LIMIT 1
) AS late ON true
ORDER BY s.execution_id DESC
"""


class Listed(View, frozen=True, kw_only=True):
    """One execution in a list."""

    execution_id: str
    status: str
    path: str
    version: int | None
    catalog_id: str | None
    parent_execution_id: str | None
    requested_at: datetime
    ended_at: datetime | None
    error: str | None


class ListedPage(View, frozen=True, kw_only=True):
    """A page of executions, the newest first; `next_cursor` is null on the last one."""

    executions: list[Listed]
    next_cursor: str | None


async def list_executions(
    database: Database,
    scope: Scope,
    *,
    before: int | None,
    limit: int,
    status: str | None,
    path: str | None = None,
    under: str | None = None,
    parent: int | None = None,
) -> ListedPage:
    """Return executions older than a cursor, the newest first; `under` is how their paths begin."""
    found: list[Listed] = []
    cursor, scanned = MAX_ID if before is None else before, 0
    while len(found) < limit and scanned < _MOST_SCANNED:
        async with database.transaction(scope) as connection:
            rows = await connection.fetch(_PAGE, ROOT_ID_LIMIT, cursor, _CHUNK, list(ENDING))
        for row in rows:
            cursor, scanned = row["execution_id"], scanned + 1
            listed = _listed(row)
            if listed is not None and _fits(listed, status, path, under, parent):
                found.append(listed)
                if len(found) == limit:
                    break
        else:
            if len(rows) < _CHUNK:
                return ListedPage(executions=found, next_cursor=None)
    return ListedPage(executions=found, next_cursor=str(cursor))


def _listed(row: Any) -> Listed | None:
    if row["requested_at"] is None or not row["meta"]:
        return None  # its events were archived, or it was never asked for as an execution
    meta = orjson.loads(row["meta"])
    parent, ended_with = row["parent_execution_id"], row["ended_with"]
    return Listed(
        execution_id=str(row["execution_id"]),
        status="RUNNING" if ended_with is None else ended_with.rpartition(".")[2].upper(),
        path=meta.get("path", ""),
        version=meta.get("version"),
        catalog_id=row["catalog_id"],
        parent_execution_id=None if parent is None else str(parent),
        requested_at=row["requested_at"],
        ended_at=row["ended_at"],
        error=row["error"],
    )


def _fits(listed: Listed, status: str | None, path: str | None, under: str | None, parent: int | None) -> bool:
    return (
        (status is None or listed.status == status)
        and (path is None or listed.path == path)
        and (under is None or listed.path.startswith(under))
        and (parent is None or listed.parent_execution_id == str(parent))
    )
