"""Everything that decides about tasks in one process, connected; the outbox calls it to wake workers for new tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.polling import OUTBOX_RETRIES, TASK_RETRIES, Backoff, Signal
from noetl.engine.dispatch.reports.references import References
from noetl.kernel.leases.kinds import TASK
from noetl.kernel.ledger.after_commit import after_commit
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.tasks.actions import TasksByHand
from noetl.pipelines.tasks.commit.commit import Committing
from noetl.pipelines.tasks.commit.drafts import CommitDrafts
from noetl.pipelines.tasks.failed_attempts import Ending
from noetl.pipelines.tasks.grants import Granting
from noetl.pipelines.tasks.jobs import Jobs
from noetl.pipelines.tasks.local import POLL_SECONDS, LocalTasks
from noetl.pipelines.tasks.outbox import LEASE_SECONDS, MAX_ATTEMPTS, Outbox, OutboxRow
from noetl.pipelines.tasks.reaper import TaskReaper
from noetl.pipelines.tasks.routing.creation import Creating
from noetl.pipelines.tasks.routing.routes import Routing
from noetl.pipelines.tasks.runs import Runs
from noetl.pipelines.tasks.wakeups.port import Wakeup, Wakeups
from noetl.pipelines.tasks.wakeups.postgres import PostgresWakeups


class TaskEngine:
    """The tasks of all organizations of one database, as one process serves them."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        payloads: PayloadStore,
        mint: Callable[[], int],
        mint_many: Callable[[int], list[int]],
        producer: str,
        *,
        signal: Signal | None = None,
        wakeups: Wakeups | None = None,
        retry: Backoff = TASK_RETRIES,
        redeliver: Backoff = OUTBOX_RETRIES,
        outbox_attempts: int = MAX_ATTEMPTS,
        outbox_lease_seconds: float = LEASE_SECONDS,
        every_seconds: float = 1.0,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self.work = signal or Signal()
        """Touched when tasks wait for a worker."""
        self.wakeups = wakeups or PostgresWakeups(database, self.work)
        self._drafting = Drafting(mint_many, producer)
        self.jobs = Jobs(database)
        self._granting = Granting(database, payloads)
        self._references = References(payloads)
        self._ending = Ending(database, ledger, self._drafting, retry, self._recorded)
        self._committing = Committing(
            database, ledger, payloads, CommitDrafts(self._drafting), self._ending, self._recorded
        )
        creating = Creating(database, ledger, payloads, self._drafting)
        self.routing = Routing(database, payloads, self.jobs, creating)
        self.by_hand = TasksByHand(database, ledger, self._drafting, self._recorded)
        self.runs = Runs(
            database, ledger, self._drafting, mint, self.jobs, creating, self.routing, self.by_hand, self._recorded
        )
        self.outbox = Outbox(
            database,
            {"enqueue_task": Waking(database, self.wakeups), "route_event": self.routing},
            backoff=redeliver,
            max_attempts=outbox_attempts,
            lease_seconds=outbox_lease_seconds,
            every_seconds=every_seconds,
        )
        self.outbox.on_delivered = self._delivered
        self.reaper = TaskReaper(
            database, ledger, self._drafting, self.runs, self._ending, self._recorded, every_seconds=every_seconds
        )
        self._poll = poll_seconds
        self._local: dict[Scope, LocalTasks] = {}

    def tasks(self, scope: Scope) -> LocalTasks:
        """Return the tasks of an organization for workers in this process; the same for all of them."""
        if scope not in self._local:
            self._local[scope] = LocalTasks(
                scope, self._database, self._ledger, self._drafting, self.jobs, self._granting, self._committing,
                self._ending, self.work, self.wakeups, self._poll, self._references,
            )  # fmt: skip
        return self._local[scope]

    def start(self) -> None:
        """Drain the outbox, take back what was lost and hear of other processes' wake-ups until closed."""
        self.outbox.start()
        self.reaper.start()
        self.wakeups.listen()

    async def close(self) -> None:
        """Stop, and finish what is under way."""
        await self.reaper.stop()
        await self.outbox.stop()
        await self.runs.close()
        await self.wakeups.close()

    def _recorded(self, scope: Scope, execution_id: int) -> None:
        after_commit("waking the outbox", self.outbox.news.touch)
        after_commit("looking at the run", self.runs.note, scope, execution_id)

    def _delivered(self, scope: Scope, rows: Sequence[OutboxRow]) -> None:
        for execution_id in {row.execution_id for row in rows}:
            self.runs.note(scope, execution_id)


_WAITING: Final = f"""
SELECT t.task_id::text AS task_id, t.runtime FROM noetl.task AS t
WHERE t.task_id = ANY ($1::uuid[]) AND {TASK.waiting("t")}
"""  # noqa: S608


class Waking:
    """Delivers wake-ups, all of a batch together: what somebody took meanwhile needs none."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    async def __call__(self, scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        """Wake whoever runs the tasks of these rows."""
        async with self._database.transaction(scope) as connection:
            waiting = await connection.fetch(_WAITING, [row.payload["task_id"] for row in rows])
        if waiting:
            await self._wakeups.wake(scope, [Wakeup(row["task_id"], row["runtime"]) for row in waiting])
        return {}
