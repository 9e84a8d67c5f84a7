"""Which tasks wait, and who of this process takes which: looked up in the database together, leased one by one."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope

WINDOW: Final = 128
"""Tasks that are looked up at once for all who claim in this process."""
FRESH_SECONDS: Final = 0.5
"""How long a look is good for; a lease is taken by its fence, so that a stale look costs a try and nothing else."""

_WAITING: Final = f"""
WITH live AS MATERIALIZED (
    SELECT DISTINCT j.generation FROM noetl.job AS j
    JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
    -- Of a build that failed, what somebody has tried again by hand is worked, too.
    WHERE v.status IN ('building', 'ready', 'active', 'failed')
), running AS MATERIALIZED (
    SELECT r.generation, count(*) AS tasks FROM noetl.task AS r WHERE r.status = 'Running' GROUP BY r.generation
), first AS MATERIALIZED (
    -- In the order of its index for each runtime, so that the first one that may be worked ends the search.
    SELECT oldest.* FROM unnest($1::text[]) AS own (runtime) CROSS JOIN LATERAL (
        SELECT t.job_id, t.available_at, t.created_event_id, j.max_concurrency,
               j.max_concurrency - coalesce(r.tasks, 0) AS room
        FROM noetl.task AS t JOIN noetl.job AS j USING (tenant_id, organization_id, job_id)
        LEFT JOIN running AS r ON r.generation = t.generation
        WHERE t.runtime = own.runtime AND {TASK.free("t")}
          AND ($3::uuid IS NULL OR t.job_id = $3) AND t.generation IN (SELECT live.generation FROM live)
          AND (j.max_concurrency IS NULL OR coalesce(r.tasks, 0) < j.max_concurrency)
        ORDER BY {TASK.first("t")} LIMIT 1
    ) AS oldest
    ORDER BY {TASK.first("oldest")} LIMIT 1
)
SELECT t.task_id::text AS task_id, t.job_id::text AS job_id, t.job, t.execution_id, t.attempt, t.lease_seconds,
       t.partition_key, t.inputs, t.inputs_ref, t.created_event_id, t.application_id, t.job_tag,
       first.max_concurrency, first.room
FROM first JOIN noetl.job AS j USING (job_id) CROSS JOIN LATERAL (
    SELECT own.* FROM noetl.task AS own
    WHERE own.runtime = j.runtime AND {TASK.free("own")}
      AND own.job_id = first.job_id
    ORDER BY {TASK.first("own")} LIMIT least($2, coalesce(first.room, $2))
) AS t
"""  # noqa: S608


class Waiting:
    """Tasks of one organization that wait, as seen a moment ago by this process."""

    def __init__(self, scope: Scope, database: Database) -> None:
        self._scope = scope
        self._database = database
        self._looking = asyncio.Lock()
        self._seen: dict[tuple[tuple[str, ...], str | None], tuple[float, deque[Any]]] = {}
        self._taken: set[tuple[str, int]] = set()
        self._leased: set[tuple[str, int]] = set()
        self._contended = False

    async def take(self, runtimes: Sequence[str], want: int, like: str | None) -> list[Any]:
        """Return up to `want` waiting tasks of one job, which nobody else in this process gets until they are put back."""
        key = (tuple(runtimes), like)
        async with self._looking:
            seen = self._fresh(key)
            if not seen:
                seen = await self._look(key, want)
            rows: list[Any] = []
            while seen and len(rows) < want and (not rows or seen[0]["job_id"] == rows[0]["job_id"]):
                row = seen.popleft()
                if _name(row) not in self._taken:
                    self._taken.add(_name(row))
                    rows.append(row)
            return rows

    def release(self, rows: Sequence[Any], *, lost: int) -> None:
        """Note that these tasks are claimed, or that another process was quicker for some of them."""
        names = set(map(_name, rows))
        self._taken -= names
        self._leased |= names
        self._contended = lost > 0
        if lost:
            self._seen.clear()

    def _fresh(self, key: tuple[tuple[str, ...], str | None]) -> deque[Any]:
        at, rows = self._seen.get(key, (0.0, deque()))
        return rows if asyncio.get_running_loop().time() - at < FRESH_SECONDS else deque()

    async def _look(self, key: tuple[tuple[str, ...], str | None], want: int) -> deque[Any]:
        runtimes, like = key
        at = asyncio.get_running_loop().time()
        self._leased.clear()
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_WAITING, list(runtimes), max(want, WINDOW) + len(self._taken), like)
        # What was leased while the look was under way may still have been free when it was seen.
        found = [row for row in rows if _name(row) not in self._taken and _name(row) not in self._leased]
        if self._contended:
            # Several processes reach for the same tasks: not all should begin with the oldest.
            random.shuffle(found)
        self._seen[key] = (at, deque(found))
        return self._seen[key][1]


def _name(row: Any) -> tuple[str, int]:
    return row["task_id"], row["attempt"]
