"""Takes back tasks whose holders were lost, and ends runs that are quiet. It looks at all organizations, acts within each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.polling import Repeating
from noetl.errors import Conflict
from noetl.faults import reach
from noetl.kernel.leases import fences, statements
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.stream import Scope
from noetl.model.task import TaskLease
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks.failed_attempts import Ending
from noetl.pipelines.tasks.runs import Runs

_log = logging.getLogger(__name__)

_EXPIRED: Final = statements.expired(
    TASK,
    "tenant_id, organization_id, task_id::text AS task_id, job, execution_id, attempt, max_attempts,"
    f" {TASK.token}::text AS token, worker, cancel_requested",
)


class TaskReaper:
    """Runs in every server, and in a single process too; any number may run at once."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        drafting: Drafting,
        runs: Runs,
        ending: Ending,
        recorded: Callable[[Scope, int], None],
        *,
        every_seconds: float = 1.0,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = drafting
        self._runs = runs
        self._ending = ending
        self._recorded = recorded
        self._every = every_seconds
        self.taken_back = 0
        """How many leases this process took back."""
        self._repeating = Repeating("the reaper of tasks", self._look_once, every_seconds=every_seconds)

    def start(self) -> None:
        """Look again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._repeating.stop()

    async def _look_once(self) -> float:
        await self.sweep()
        await self._runs.settle_quiet()
        return self._every

    async def sweep(self) -> int:
        """Look once for leases that ran out, and return how many were taken back."""
        async with self._database.transaction(None, "reaper") as connection:
            rows = await connection.fetch(_EXPIRED)
        return sum(await asyncio.gather(*map(self._taken_back, rows)))

    async def _taken_back(self, row: Any) -> int:
        scope = Scope(row["tenant_id"], row["organization_id"])
        reach("task.before_reap")
        try:
            await self._record(scope, row)
        except Conflict:
            return 0  # its holder came back in time, or somebody else was quicker
        reach("task.after_reap")
        self.taken_back += 1
        self._recorded(scope, row["execution_id"])
        return 1

    async def _record(self, scope: Scope, row: Any) -> None:
        attempt = row["attempt"]
        lease = TaskLease(task_id=row["task_id"], attempt=attempt, token=row["token"], seconds=0.0)
        if row["cancel_requested"]:
            await self._ending.cancelled(scope, row["execution_id"], row["job"], lease, expired=True)
            return
        lost = f"its worker {row['worker']} was lost"
        meta: dict[str, Any] = {"attempt": attempt, "error_kind": "lease_expired"}
        if await self._ending.is_last(scope, lease, row["max_attempts"]):
            said, error = "task.failed", f"{lost} in the last of {attempt} attempts"
        else:
            said, error = "task.abandoned", f"{lost} in attempt {attempt}"
            meta["delay_seconds"] = 0
        stream = identity.task_stream(scope, row["task_id"])
        draft = self._drafting.one(
            scope, stream, row["execution_id"], said, stream.stream_id, node_name=row["job"], meta=meta, error=error
        )
        fence = fences.expired(TASK, lease.proof)
        await self._ledger.transact(Transition((Append(stream, [draft]),), (fence,)))
