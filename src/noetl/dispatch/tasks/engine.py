"""Everything that decides about tasks in one process, connected: handing out, committing, outbox, routing, reaper, runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noetl.dispatch.drafts import Drafting
from noetl.dispatch.reports.references import References
from noetl.dispatch.signal import Signal
from noetl.dispatch.tasks.backoff import OUTBOX, TASKS, Backoff
from noetl.dispatch.tasks.by_hand import TasksByHand
from noetl.dispatch.tasks.commit_drafts import CommitDrafts
from noetl.dispatch.tasks.committing import Committing
from noetl.dispatch.tasks.creating import Creating
from noetl.dispatch.tasks.ending import Ending
from noetl.dispatch.tasks.granting import Granting
from noetl.dispatch.tasks.jobs import Jobs
from noetl.dispatch.tasks.local import POLL_SECONDS, LocalTasks
from noetl.dispatch.tasks.outbox import LEASE_SECONDS, MAX_ATTEMPTS, Outbox, OutboxRow
from noetl.dispatch.tasks.reaper import TaskReaper
from noetl.dispatch.tasks.routing import Routing
from noetl.dispatch.tasks.runs import Runs
from noetl.dispatch.tasks.wakeups.port import Wakeups
from noetl.dispatch.tasks.wakeups.postgres import PostgresWakeups
from noetl.dispatch.tasks.waking import Waking
from noetl.ledger.after_commit import after_commit
from noetl.ledger.database import Database
from noetl.ledger.port import Ledger
from noetl.model.stream import Scope
from noetl.payloads.port import PayloadStore


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
        retry: Backoff = TASKS,
        redeliver: Backoff = OUTBOX,
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
