"""Backfills become tasks, a few at a time: in turn over organizations, behind whatever else waits, each partition once.

The tasks and the step of the backfill that gives them out are one transaction at a known version, so that any number of
processes may drive and any may die.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from noetl.engine.dispatch.polling import Repeating
from noetl.errors import Conflict, NoetlError, PayloadCollected, VersionConflict
from noetl.faults import reach
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.stream import Scope
from noetl.pipelines.changes.backfills.requests import Backfills
from noetl.pipelines.changes.backfills.rows import COLUMNS, Backfill, backfill_of, read_progress
from noetl.pipelines.changes.context import Means, tasks_again
from noetl.pipelines.tasks.jobs import JobFacts

_log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.02
"""Ends of tasks within this time share one look at the backfills."""
AT_ONCE: Final = 4
"""Organizations that are served together."""
MADE_TOGETHER: Final = 200
"""Tasks of one transaction, at most."""
SLOWER: Final = 8
"""How many times fewer tasks a backfill has under way while others' wait."""

# One that was requested a moment ago is being queued by whoever asked for it.
_OPEN: Final = f"""
SELECT b.tenant_id, b.organization_id, {COLUMNS} FROM noetl.backfill AS b
WHERE b.status = 'running'
   OR (b.status = 'queueing' AND b.moved_at < clock_timestamp() - make_interval(secs => $1))
ORDER BY b.backfill_id
"""  # noqa: S608
_IN_USE: Final = """
SELECT j.job_id::text FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
WHERE j.generation = $1 AND v.status IN ('active', 'building', 'ready', 'failed')
ORDER BY v.status = 'active' DESC, v.created_at DESC LIMIT 1
"""
_UNDER_WAY: Final = """
SELECT count(*) FROM noetl.task WHERE execution_id = $1 AND available_at IS NOT NULL
"""
_FRESH: Final = f"""
SELECT EXISTS (SELECT FROM noetl.task AS t WHERE t.runtime = $1 AND t.available_at <= clock_timestamp()
  AND {TASK.waiting("t")} AND NOT EXISTS (
    SELECT FROM noetl.backfill AS b WHERE b.backfill_id = t.execution_id))
"""  # noqa: S608
_NEXT: Final = """
SELECT partition_key FROM noetl.backfill_partition WHERE backfill_id = $1 AND ordinal >= $2 ORDER BY ordinal LIMIT $3
"""
_PENDING: Final = "SELECT EXISTS (SELECT FROM noetl.outbox WHERE execution_id = $1 AND status = 'Pending')"


class BackfillDrain:
    """Drives the backfills of all organizations; any number may run at once."""

    def __init__(
        self,
        means: Means,
        backfills: Backfills,
        *,
        organization_in_flight: int = 128,
        every_seconds: float = 1.0,
        patience_seconds: float = 5.0,
    ) -> None:
        self._means = means
        self._backfills = backfills
        self._most = organization_in_flight
        self._every = every_seconds
        self._patience = patience_seconds
        self._turn = 0
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._repeating = Repeating(
            "the drain of backfills", self._look_once, every_seconds=every_seconds, news=means.engine.outbox.news
        )

    def start(self) -> None:
        """Drive again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop driving; what is given out goes on."""
        await self._repeating.stop()

    async def _look_once(self) -> float:
        await asyncio.sleep(GATHER_SECONDS)
        while await self.drain():
            pass
        return self._every

    async def drain(self) -> int:
        """Let every backfill take one step, and return how many did."""
        async with self._means.database.transaction(None, "reaper") as connection:
            rows = await connection.fetch(_OPEN, self._patience)
        of_scope: dict[Scope, list[Backfill]] = {}
        for row in rows:
            of_scope.setdefault(Scope(row["tenant_id"], row["organization_id"]), []).append(backfill_of(row))
        self._turn += 1
        steps = await asyncio.gather(*(self._serve(scope, some) for scope, some in of_scope.items()))
        return sum(steps)

    async def _serve(self, scope: Scope, backfills: Sequence[Backfill]) -> int:
        """Let the backfills of an organization take a step each, beginning with another one every time."""
        first = self._turn % len(backfills)
        steps = 0
        async with self._gate:
            async with self._means.database.transaction(scope) as connection:
                busy = {one.backfill_id: await _under_way(connection, one) for one in backfills}
            for one in [*backfills[first:], *backfills[:first]]:
                share = max(1, self._most // len(backfills))
                left = min(self._most - sum(busy.values()), share - busy[one.backfill_id])
                made = await self._tried(scope, one, busy[one.backfill_id], left)
                busy[one.backfill_id] += made or 0
                steps += made is not None
        return steps

    async def _tried(self, scope: Scope, one: Backfill, under_way: int, left: int) -> int | None:
        """Take a step, and return how many tasks it made; None if there was nothing to do now."""
        try:
            return await self._step(scope, one, under_way, left)
        except (VersionConflict, PayloadCollected):
            return None  # somebody else was quicker, or the next look does better
        except NoetlError as problem:
            _log.warning("backfill %d could not be driven: %s", one.backfill_id, problem.message)
        except Exception:
            _log.exception("backfill %d stumbled", one.backfill_id)
        return None

    async def _step(self, scope: Scope, one: Backfill, under_way: int, left: int) -> int | None:
        if one.status == "queueing":
            await self._backfills.queue_rest(scope, one)
            return 0
        if one.made >= one.total:
            return 0 if under_way == 0 and await self._end(scope, one) else None
        async with self._means.database.transaction(scope) as connection:
            job_id = await connection.fetchval(_IN_USE, one.generation)
            if job_id is not None:
                facts = await self._means.engine.jobs.get(scope, job_id, connection)
                fresh = await connection.fetchval(_FRESH, facts.definition.runtime)
        if job_id is None:
            with suppress(Conflict):
                reason = "the generation it builds is no longer in use"
                await self._backfills.cancel(scope, one.backfill_id, by="noetl", reason=reason)
            return 0
        # What is new comes first: behind it a backfill goes on slowly, so that it never stands still.
        most = max(1, one.max_in_flight // SLOWER) if fresh else one.max_in_flight
        room = min(most - under_way, left, MADE_TOGETHER)
        return await self._advance(scope, one, facts, room) if room > 0 else None

    async def _advance(self, scope: Scope, one: Backfill, facts: JobFacts, room: int) -> int:
        async with self._means.database.transaction(scope) as connection:
            keys = [row["partition_key"] for row in await connection.fetch(_NEXT, one.backfill_id, one.made, room)]
            tasks = await tasks_again(connection, facts, set(keys), one.backfill_id)
        creating = self._means.creating
        created = await asyncio.gather(*(creating.append(scope, one.backfill_id, facts, task) for task in tasks))
        meta = {"made": one.made + len(keys), "tasks": len(tasks)}
        reach("backfill.before_advance")
        await self._backfills.record(scope, one, "backfill.advanced", meta, *created)
        reach("backfill.after_advance")
        self._means.recorded(scope, one.backfill_id)
        return len(tasks)

    async def _end(self, scope: Scope, one: Backfill) -> bool:
        """Record the end of a backfill of which nothing is left to do, nor of what follows."""
        async with self._means.database.transaction(scope) as connection:
            if await connection.fetchval(_PENDING, one.backfill_id) or await _under_way(connection, one):
                return False
            progress = await read_progress(connection, one)
        failed = progress.failed + progress.following_failed
        reach("backfill.before_end")
        if failed:
            error = (
                f"{progress.failed} of {one.total} partitions failed, and {progress.following_failed} tasks that follow"
            )
            await self._backfills.record(scope, one, "backfill.failed", {"failed": failed}, error=error)
        else:
            await self._backfills.record(scope, one, "backfill.completed", {})
        reach("backfill.after_end")
        self._means.recorded(scope, one.backfill_id)
        return True


async def _under_way(connection: Connection, one: Backfill) -> int:
    count: Any = await connection.fetchval(_UNDER_WAY, one.backfill_id)
    return int(count)
