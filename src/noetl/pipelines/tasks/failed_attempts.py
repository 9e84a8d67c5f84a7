"""How attempts end that came to nothing: tried again later, failed for good, or cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.polling import Backoff
from noetl.engine.dispatch.reports.refusals import shortened
from noetl.errors import LeaseLost
from noetl.faults import reach
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import CheckResult, TaskGrant, TaskLease, TaskReport, TaskStatus
from noetl.pipelines.plan import identity

_LEFT: Final = "SELECT max_attempts, cancel_requested FROM noetl.task WHERE task_id = $1"
_UNCOUNTED: Final = """
SELECT count(*) FROM noetl.known_event WHERE stream_id = $1 AND event_type = 'task.attempt_failed'
  AND meta ->> 'error_kind' = 'interrupted'
"""
_REASON: Final = """
SELECT meta ->> 'reason' FROM noetl.known_event WHERE stream_id = $1 AND event_type = 'task.cancel_requested'
ORDER BY stream_version DESC LIMIT 1
"""


class Ending:
    """Records ends of attempts in one database."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        drafting: Drafting,
        backoff: Backoff,
        recorded: Callable[[Scope, int], None],
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = drafting
        self._backoff = backoff
        self._recorded = recorded

    async def failed(self, scope: Scope, grant: TaskGrant, report: TaskReport) -> TaskStatus:
        """Record what an attempt that did not do well means for its task."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_LEFT, grant.lease.task_id)
        if row is None:
            raise LeaseLost(f"there is no task {grant.lease.task_id}")
        if row["cancel_requested"]:
            await self.cancelled(scope, grant.execution_id, grant.job, grant.lease, report.logs)
            return "Canceled"
        interrupted = report.status == "canceled"
        if not interrupted and (not report.retryable or await self.is_last(scope, grant.lease, row["max_attempts"])):
            await self.record(scope, grant, "task.failed", {"error_kind": report.error_kind}, report)
            return "Failed"
        # An attempt that was interrupted, because its worker had to stop, says nothing against the next one, nor counts.
        delay = 0.0 if interrupted else self._backoff.seconds(grant.lease.attempt)
        meta = {"delay_seconds": delay, "error_kind": "interrupted" if interrupted else report.error_kind}
        await self.record(scope, grant, "task.attempt_failed", meta, report)
        return "Failed"

    async def is_last(self, scope: Scope, lease: TaskLease, most: int) -> bool:
        """Tell whether no attempt may follow; those that were interrupted are not counted."""
        if lease.attempt < most:
            return False
        async with self._database.transaction(scope) as connection:
            stream = identity.task_stream(scope, lease.task_id)
            uncounted: int = await connection.fetchval(_UNCOUNTED, stream.stream_id)
        return lease.attempt - uncounted >= most

    async def for_good(self, scope: Scope, grant: TaskGrant, report: TaskReport, error: str, kind: str) -> TaskStatus:
        """Record that trying again would not help."""
        refused = msgspec.structs.replace(report, error=error, error_kind=kind)
        await self.record(scope, grant, "task.failed", {"error_kind": kind}, refused)
        return "Failed"

    async def overtaken(
        self, scope: Scope, grant: TaskGrant, report: TaskReport, newer: str, more: tuple[Append, ...] = ()
    ) -> TaskStatus:
        """Record that another task made the same of newer inputs meanwhile, which stands, and what follows from it."""
        lease = grant.lease
        stream = identity.task_stream(scope, lease.task_id)
        draft = self._drafting.one(
            scope, stream, grant.execution_id, "task.skipped", stream.stream_id, node_name=grant.job,
            meta={"attempt": lease.attempt, "as_task": newer}, payload_ref=report.logs,
        )  # fmt: skip
        fence = fences.held(TASK, lease.proof)
        await self._ledger.transact(Transition((Append(stream, [draft]), *more), (fence,)))
        self._recorded(scope, grant.execution_id)
        return "Skipped"

    async def cancelled(
        self,
        scope: Scope,
        execution_id: int,
        job: str,
        lease: TaskLease,
        logs: PayloadRef | None = None,
        *,
        expired: bool = False,
    ) -> None:
        """Record that a task somebody asked the end of has ended, by its holder or after its holder was lost."""
        stream = identity.task_stream(scope, lease.task_id)
        async with self._database.transaction(scope) as connection:
            reason = await connection.fetchval(_REASON, stream.stream_id) or "it was cancelled"
        draft = self._drafting.one(
            scope, stream, execution_id, "task.cancelled", stream.stream_id, node_name=job,
            meta={"attempt": lease.attempt, "reason": reason}, error=reason, payload_ref=logs,
        )  # fmt: skip
        fence = (fences.expired if expired else fences.held)(TASK, lease.proof)
        await self._ledger.transact(Transition((Append(stream, [draft]),), (fence,)))
        self._recorded(scope, execution_id)

    async def record(
        self, scope: Scope, grant: TaskGrant, event_type: str, meta: dict[str, Any], report: TaskReport
    ) -> None:
        """Record the end of an attempt under its lease."""
        lease = grant.lease
        stream = identity.task_stream(scope, lease.task_id)
        told = {name: value for name, value in meta.items() if value is not None}
        draft = self._drafting.one(
            scope, stream, grant.execution_id, event_type, stream.stream_id, node_name=grant.job,
            meta={"attempt": lease.attempt, **told},
            context=checks_told(report.checks) if event_type == "task.failed" else {},
            error=_told(report.error), payload_ref=report.logs,
        )  # fmt: skip
        fence = fences.held(TASK, lease.proof)
        reach("task.before_end")
        await self._ledger.transact(Transition((Append(stream, [draft]),), (fence,)))
        reach("task.after_end")
        self._recorded(scope, grant.execution_id)


def checks_told(checks: tuple[CheckResult, ...]) -> dict[str, Any]:
    """Return results of checks as an event has them."""
    return {"checks": [msgspec.to_builtins(check) for check in checks]} if checks else {}


def _told(error: str | None) -> str:
    """Return an error that fits an event."""
    return shortened((error or "it failed without a word").replace("\x00", ""))
