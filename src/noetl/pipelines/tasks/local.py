"""Tasks handed out on the database itself, for workers in the same process and behind the API."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.polling import Signal
from noetl.engine.dispatch.reports.references import References
from noetl.errors import UNREADABLE, Conflict, LeaseLost, NoetlError
from noetl.faults import reach
from noetl.kernel.leases import fences, operations, statements
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Fence, Transition
from noetl.model.dataset import Manifest
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskLease, TaskReport, TaskStatus
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks import reports
from noetl.pipelines.tasks.claims import Waiting
from noetl.pipelines.tasks.commit.commit import Committing
from noetl.pipelines.tasks.failed_attempts import Ending
from noetl.pipelines.tasks.grants import Claimed, Granting, bare
from noetl.pipelines.tasks.jobs import JobFacts, Jobs
from noetl.pipelines.tasks.wakeups.port import Wakeups

POLL_SECONDS: Final = 0.5
"""How often one who waits looks by himself, should no wake-up reach him."""

_HELD: Final = statements.standing(TASK, "job_id::text AS job_id, execution_id, partition_key, inputs, inputs_ref")
_RENEWED: Final = ", known.cancel_requested, known.execution_id, known.job"


class LocalTasks:
    """See `Tasks` for the promises; bound to one organization."""

    def __init__(
        self,
        scope: Scope,
        database: Database,
        ledger: Ledger,
        drafting: Drafting,
        jobs: Jobs,
        granting: Granting,
        committing: Committing,
        ending: Ending,
        signal: Signal,
        wakeups: Wakeups,
        poll_seconds: float,
        references: References,
    ) -> None:
        self._scope = scope
        self._database = database
        self._ledger = ledger
        self._drafting = drafting
        self._jobs = jobs
        self._granting = granting
        self._committing = committing
        self._ending = ending
        self._signal = signal
        self._wakeups = wakeups
        self._poll = poll_seconds
        self._references = references
        self._waiting = Waiting(scope, database)

    async def claim(
        self, worker: str, runtimes: Sequence[str], want: int, wait_seconds: float, *, like: str | None = None
    ) -> list[TaskGrant]:
        """Lease tasks of one job that wait, the oldest first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            seen = self._signal.number
            rows = await self._waiting.take(runtimes, want, like)
            granted = await self._claim(worker, rows)
            left = deadline - loop.time()
            if granted or (not rows and left <= 0):
                return granted
            if not rows:  # else somebody else was quicker with all of them, and there may be more
                with self._wakeups.awaited(runtimes):
                    await self._signal.wait(seen, min(left, self._poll))

    async def _claim(self, worker: str, rows: Sequence[Any]) -> list[TaskGrant]:
        if not rows:
            return []
        granted: list[TaskGrant | BaseException | None] = []
        try:
            facts = await self._facts(rows[0]["job_id"])
            claimed = [_claimed(row) for row in rows]
            # All that could fail comes before the leases: a task that is leased and granted to nobody counts as lost.
            grants, broken = await self._grants(facts, claimed)
            # Each on its own, so that a lost race costs that task only; the ledger writes them as one group.
            leases = (self._leased(worker, row, grant) for row, grant in zip(rows, grants, strict=True))
            granted = list(await asyncio.gather(*leases, return_exceptions=True))
        finally:
            self._waiting.release(rows, lost=sum(one is None for one in granted))
        won = [one for one in granted if isinstance(one, TaskGrant)]
        failed = [one for one in granted if isinstance(one, BaseException)]
        if failed and not won:
            raise failed[0]
        for one in won:
            if (problem := broken.get(one.lease.task_id)) is not None:
                await self._unreadable(one, problem)
        return [one for one in won if one.lease.task_id not in broken]

    async def _grants(
        self, facts: JobFacts, claimed: Sequence[Claimed]
    ) -> tuple[list[TaskGrant], dict[str, NoetlError]]:
        """Return a grant of each task, and why those that can never be granted cannot be."""
        try:
            return await self._granting.grants(self._scope, facts, claimed), {}
        except UNREADABLE as problem:
            if len(claimed) == 1:
                return [bare(facts, claimed[0])], {claimed[0].lease.task_id: problem}
        grants, broken = [], {}
        for one in claimed:
            its, problems = await self._grants(facts, [one])
            grants += its
            broken.update(problems)
        return grants, broken

    async def _unreadable(self, grant: TaskGrant, problem: NoetlError) -> None:
        """Fail a task whose inputs can never be read: it would be the first to be granted for ever."""
        report = TaskReport(status="error", retryable=False)
        with suppress(Conflict):
            await self._ending.for_good(self._scope, grant, report, problem.message, problem.code)

    async def _facts(self, job_id: str) -> JobFacts:
        return self._jobs.known(self._scope, job_id) or await self._jobs.get(self._scope, job_id)

    async def _leased(self, worker: str, row: Any, grant: TaskGrant) -> TaskGrant | None:
        """Record the lease of a grant; None if somebody else was quicker."""
        lease = grant.lease
        stream = identity.task_stream(self._scope, lease.task_id)
        meta = {"attempt": lease.attempt, "worker": worker, "lease_token": lease.token, "lease_seconds": lease.seconds}
        draft = self._drafting.one(
            self._scope, stream, row["execution_id"], "task.claimed", stream.stream_id, node_name=row["job"],
            causation_id=row["created_event_id"], meta=meta,
        )  # fmt: skip
        relied_on = [fences.free(TASK, (lease.task_id,), row["attempt"])]
        if row["max_concurrency"] is not None:
            relied_on.append(Fence("job", 0, row["job_id"], row["max_concurrency"], None, "room"))
        reach("task.before_claim")
        try:
            await self._ledger.transact(Transition((Append(stream, [draft]),), tuple(relied_on)))
        except LeaseLost:
            return None
        reach("task.after_claim")
        return grant

    async def fetch(self, lease: TaskLease) -> TaskGrant:
        """Return once more what was granted with a lease that is still held."""
        async with self._database.transaction(self._scope) as connection:
            row = await connection.fetchrow(_HELD, lease.task_id, lease.attempt, lease.token)
        if row is None:
            raise LeaseLost(f"the lease on task {lease.task_id} is not held any more")
        claimed = Claimed(lease, row["execution_id"], row["partition_key"], row["inputs"], row["inputs_ref"])
        (grant,) = await self._granting.grants(self._scope, await self._facts(row["job_id"]), [claimed])
        return grant

    async def heartbeat(self, leases: Sequence[TaskLease]) -> list[TaskLease]:
        """Renew leases with the database's clock; tasks that are to be cancelled end, and count as lost."""
        if not leases:
            return []
        proofs = [lease.proof for lease in leases]
        async with self._database.transaction(self._scope) as connection:
            kept = await operations.renew(connection, TASK, proofs, returning=_RENEWED)
        lost = []
        for lease, proof in zip(leases, proofs, strict=True):
            row = kept.get(proof)
            if row is None or row["cancel_requested"]:
                lost.append(lease)
            if row is not None and row["cancel_requested"]:
                with suppress(Conflict):  # it ended a moment ago
                    await self._ending.cancelled(self._scope, row["execution_id"], row["job"], lease)
        return lost

    async def started(self, grant: TaskGrant, application_id: str, job_tag: str) -> None:
        """Record where the work runs."""
        reports.started(grant, application_id, job_tag)
        lease = grant.lease
        stream = identity.task_stream(self._scope, lease.task_id)
        draft = self._drafting.one(
            self._scope, stream, grant.execution_id, "task.started", stream.stream_id, node_name=grant.job,
            meta={"attempt": lease.attempt, "application_id": application_id, "job_tag": job_tag},
        )  # fmt: skip
        fence = fences.held(TASK, lease.proof)
        await self._ledger.transact(Transition((Append(stream, [draft]),), (fence,)))

    async def complete(
        self, grant: TaskGrant, report: TaskReport, manifests: Mapping[str, Manifest] | None = None
    ) -> TaskStatus:
        """Commit what an attempt wrote."""
        if report.status != "ok":
            return await self.fail(grant, report)
        await self._references.check(self._scope, reports.end(grant, report))
        return await self._committing.commit(
            self._scope, await self._facts(grant.job_id), grant, report, manifests or {}
        )

    async def fail(self, grant: TaskGrant, report: TaskReport) -> TaskStatus:
        """Record that an attempt came to nothing."""
        await self._references.check(self._scope, reports.end(grant, report))
        return await self._ending.failed(self._scope, grant, report)


def _claimed(row: Any) -> Claimed:
    """Return a task with the lease that its claim would record."""
    lease = TaskLease(
        task_id=row["task_id"],
        attempt=row["attempt"] + 1,
        token=str(uuid.uuid4()),
        seconds=float(row["lease_seconds"]),
    )
    return Claimed(lease, row["execution_id"], row["partition_key"], row["inputs"], row["inputs_ref"], _left(row))


def _left(row: Any) -> tuple[str, str] | None:
    """Return where the attempt before ran, if it got so far."""
    return None if row["application_id"] is None else (row["application_id"], row["job_tag"])
