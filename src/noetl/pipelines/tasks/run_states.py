"""How a run of a pipeline stands: what it is about, whether something of it is left to do, and what went wrong first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.stream import Scope, execution_stream

_EVENTS: Final = """
SELECT event_type, meta, error, event_time FROM noetl.known_event WHERE stream_id = $1 AND execution_id = $2
  AND event_type IN ('execution.requested', 'execution.completed', 'execution.failed', 'execution.cancelled')
ORDER BY stream_version
"""
_BUSY: Final = """
SELECT EXISTS (SELECT FROM noetl.task WHERE execution_id = $1 AND available_at IS NOT NULL)
    OR EXISTS (SELECT FROM noetl.outbox WHERE execution_id = $1 AND status = 'Pending')
    OR EXISTS (SELECT FROM noetl.backfill WHERE backfill_id = $1 AND status IN ('queueing', 'running', 'paused'))
"""
_WAITED_FOR: Final = """
SELECT EXISTS (SELECT FROM noetl.task WHERE execution_id = ANY ($1::bigint[]) AND available_at IS NOT NULL)
    OR EXISTS (SELECT FROM noetl.outbox WHERE execution_id = ANY ($1::bigint[]) AND status = 'Pending')
"""
_FAILED: Final = """
SELECT job, partition_key, error FROM noetl.task
WHERE status = 'Failed' AND available_at IS NULL
  AND (execution_id = $1 OR execution_id = ANY ($2::bigint[]) AND ended_at >= $3)
ORDER BY ended_at, task_id LIMIT 1
"""
_DEAD: Final = """
SELECT kind, last_error FROM noetl.outbox WHERE execution_id = $1 AND status = 'Dead' ORDER BY created_at LIMIT 1
"""
# What builds a version may have been created by an earlier try at it, in another run.
_BUILDING: Final = """
SELECT t.task_id::text AS task_id, t.job, t.partition_key, t.error, t.available_at IS NOT NULL AS is_open
FROM noetl.dag_version AS v JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id)
JOIN noetl.task AS t USING (tenant_id, organization_id, generation)
WHERE v.dag_version_id = $1 AND v.built ? j.name
  AND (t.available_at IS NOT NULL OR t.status IN ('Failed', 'Canceled')) ORDER BY t.ended_at, t.task_id
"""
_OPEN: Final = """
SELECT p.execution_id FROM noetl.projection AS p
WHERE p.projection = 'execution' AND p.status IN ('PENDING', 'RUNNING') AND NOT EXISTS (
    SELECT FROM noetl.execution_head AS h WHERE h.execution_id = p.execution_id)
ORDER BY p.execution_id LIMIT 200
"""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is about, as its first event says, and how it ended."""

    execution_id: int
    kind: str
    dag: str
    dag_version_id: str | None
    ended: Literal["completed", "failed", "cancelled"] | None
    error: str | None = None
    waits_for: tuple[int, ...] = ()
    """Other runs whose tasks came back when this one began; it ends after they are quiet."""
    requested_at: datetime


async def read_run(connection: Connection, scope: Scope, execution_id: int) -> Run:
    """Return a run by its id."""
    rows = await connection.fetch(_EVENTS, execution_stream(scope, execution_id).stream_id, execution_id)
    if not rows:
        raise NotFound(f"there is no execution {execution_id}")
    meta: dict[str, Any] = orjson.loads(rows[0]["meta"])
    last = rows[-1]["event_type"].partition(".")[2]
    return Run(
        execution_id=execution_id,
        kind=meta.get("kind", "playbook"),
        dag=meta.get("dag", ""),
        dag_version_id=meta.get("dag_version_id"),
        ended=None if last == "requested" else last,
        error=rows[-1]["error"],
        waits_for=tuple(map(int, meta.get("waits_for", ()))),
        requested_at=rows[0]["event_time"],
    )


async def is_busy(connection: Connection, execution_id: int) -> bool:
    """Tell whether anything that a run itself caused is under way or waits."""
    return bool(await connection.fetchval(_BUSY, execution_id))


class Quiet(msgspec.Struct, frozen=True):
    """A run of which nothing is under way or waits."""

    error: str | None
    """What went wrong first; None if all went well."""


async def quiet(connection: Connection, run: Run) -> Quiet | None:
    """Tell how a run came out of which nothing is under way or waits; None while something is."""
    if await is_busy(connection, run.execution_id):
        return None
    if run.waits_for and await connection.fetchval(_WAITED_FOR, run.waits_for):
        return None
    # Looked at once: a task that another try opens between two looks would pass for one that failed.
    building = await connection.fetch(_BUILDING, run.dag_version_id) if run.kind == "deploy" else []
    if any(row["is_open"] for row in building):
        return None
    return Quiet(await _failure(connection, run, building))


async def _failure(connection: Connection, run: Run, building: Sequence[Any]) -> str | None:
    failed = await connection.fetchrow(_FAILED, run.execution_id, run.waits_for, run.requested_at)
    if failed is None and building:
        failed = building[0]
    if failed is not None:
        return f"job {failed['job']}, partition {failed['partition_key']}: {failed['error']}"
    dead = await connection.fetchrow(_DEAD, run.execution_id)
    return None if dead is None else f"{dead['kind']} could not be delivered: {dead['last_error']}"


async def given_up(connection: Connection, dag_version_id: str) -> list[str]:
    """Return the tasks that build a version and have failed for good or were cancelled."""
    return [row["task_id"] for row in await connection.fetch(_BUILDING, dag_version_id) if not row["is_open"]]


async def open_runs(connection: Connection) -> list[int]:
    """Return the runs that have not ended, as projected."""
    return [row["execution_id"] for row in await connection.fetch(_OPEN)]
