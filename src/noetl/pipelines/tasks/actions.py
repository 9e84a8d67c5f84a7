"""What people do with tasks: list them, follow their attempts, cancel them, have them tried again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import Conflict, LeaseLost, VersionConflict
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Fence, Transition
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import TaskStatus
from noetl.pipelines.catalog.datasets.history import check_task_kept
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.life_cycles import AFTER, PREFIX
from noetl.pipelines.tasks.rows import COLUMNS, TaskRow, read_task, task_row

UNUSED: Final = "its generation is no longer in use"
"""Why tasks are cancelled after another version was activated; they come back with their generation."""
_TRIES: Final = 20

_LIST: Final = f"""
SELECT {COLUMNS} FROM noetl.task AS t
WHERE ($1::text IS NULL OR t.dag = $1) AND ($2::text IS NULL OR t.job = $2) AND ($3::text IS NULL OR t.status = $3)
  AND ($4::bigint IS NULL OR t.execution_id = $4) AND ($5::bigint IS NULL OR t.created_event_id < $5)
ORDER BY t.created_event_id DESC LIMIT $6
"""  # noqa: S608
_UNUSED: Final = """
SELECT t.task_id::text AS task_id FROM noetl.task AS t
WHERE t.available_at IS NOT NULL AND NOT t.cancel_requested AND NOT EXISTS (
    SELECT FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
    WHERE j.generation = t.generation AND v.status IN ('building', 'failed', 'ready', 'active'))
"""
_COMING_BACK: Final = """
SELECT t.task_id::text AS task_id, t.execution_id, t.dedupe_key FROM noetl.task AS t JOIN noetl.job AS j USING (tenant_id, organization_id, generation)
WHERE j.dag_version_id = $1 AND t.status = 'Canceled' AND t.error = $2
"""
_LATER_TURN: Final = f"""
SELECT EXISTS (SELECT FROM noetl.task AS later WHERE later.generation = t.generation
    AND later.dedupe_key > t.dedupe_key AND later.dedupe_key < '{AFTER}')
FROM noetl.task AS t WHERE t.task_id = $1 AND t.dedupe_key >= '{PREFIX}' AND t.dedupe_key < '{AFTER}'
"""  # noqa: S608 - constants


class AttemptStory(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task, as its events tell."""

    attempt: int
    worker: str
    claimed_at: datetime
    outcome: str = "running"
    ended_at: datetime | None = None
    application_id: str | None = None
    job_tag: str | None = None
    error: str | None = None
    error_kind: str | None = None
    logs: PayloadRef | None = None
    told: dict[str, Any] = {}
    """What it reported besides: outputs, checks, metrics."""


class TasksByHand:
    """The tasks of one database."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        drafting: Drafting,
        recorded: Callable[[Scope, int], None],
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = drafting
        self._recorded = recorded

    async def listed(
        self,
        scope: Scope,
        *,
        dag: str | None = None,
        job: str | None = None,
        status: TaskStatus | None = None,
        execution_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[TaskRow]:
        """Return tasks, the newest first; `before` is the `created_event_id` of the last one seen."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_LIST, dag, job, status, execution_id, before, limit)
        return [task_row(row) for row in rows]

    async def show(self, scope: Scope, task_id: str) -> TaskRow:
        """Return one task."""
        async with self._database.transaction(scope) as connection:
            return await read_task(connection, task_id)

    async def history(self, scope: Scope, task_id: str) -> list[AttemptStory]:
        """Return the attempts at a task, in their order."""
        stories: list[AttemptStory] = []
        async for event in self._ledger.read(identity.task_stream(scope, task_id)):
            said = event.event_type.partition(".")[2]
            if said == "claimed":
                stories.append(
                    AttemptStory(
                        attempt=event.meta["attempt"], worker=event.meta["worker"], claimed_at=event.ingest_time
                    )
                )
            elif said == "started" and stories:
                place = {name: event.meta.get(name) for name in ("application_id", "job_tag")}
                stories[-1] = msgspec.structs.replace(stories[-1], **place)
            elif stories and event.meta.get("attempt") == stories[-1].attempt:
                stories[-1] = msgspec.structs.replace(
                    stories[-1],
                    outcome=said,
                    ended_at=event.ingest_time,
                    error=event.error,
                    error_kind=event.meta.get("error_kind"),
                    logs=event.payload_ref,
                    told=event.context,
                )
        return stories

    async def cancel(self, scope: Scope, task_id: str, *, reason: str, by: str) -> TaskStatus:
        """End a task that waits; ask for the end of one that runs, which its worker hears with its next heartbeat."""

        def decided(task: TaskRow) -> tuple[str, dict[str, Any], str | None] | None:
            if not task.open:
                raise Conflict(f"task {task_id} has ended already: it is {task.status}")
            if task.status == "Running":
                return None if task.cancel_requested else ("task.cancel_requested", {"reason": reason, "by": by}, None)
            return "task.cancelled", {"attempt": task.attempt, "reason": reason, "by": by}, reason

        task = await self._change(scope, task_id, "open", decided)
        return "Running" if task.status == "Running" else "Canceled"

    async def retry(self, scope: Scope, task_id: str, *, by: str) -> None:
        """Let a task that failed for good or was cancelled be tried again."""

        def decided(task: TaskRow) -> tuple[str, dict[str, Any], str | None]:
            if task.open or task.status not in {"Failed", "Canceled"}:
                raise Conflict(
                    f"task {task_id} is {task.status}; only one that failed for good or was cancelled is tried again"
                )
            extra = max(task.attempt + 1 - task.max_attempts, 0)
            return "task.retried", {"extra_attempts": extra, "by": by}, None

        async with self._database.transaction(scope) as connection:
            if await connection.fetchval(_LATER_TURN, task_id):
                raise Conflict(
                    f"task {task_id} is a turn of a source that went on without it",
                    hint="what it did not do, the turns after it have done",
                )
            await check_task_kept(connection, task_id)
        await self._change(scope, task_id, "ended", decided)

    async def cancel_unused(self, scope: Scope, *, by: str) -> list[str]:
        """Cancel the open tasks of generations that no version in use has, as after a rollback."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_UNUSED)
        cancelled = []
        for row in rows:
            try:
                await self.cancel(scope, row["task_id"], reason=UNUSED, by=by)
            except Conflict:
                continue
            cancelled.append(row["task_id"])
        return cancelled

    async def bring_back(self, scope: Scope, dag_version_id: str, *, by: str) -> set[int]:
        """Retry the tasks that were cancelled because nobody used their generation, now that this version does.

        Return the runs they belong to; a turn of a source is taken up again, but nobody waits for it.
        """
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_COMING_BACK, dag_version_id, UNUSED)
        for row in rows:
            with suppress(Conflict):  # somebody else was quicker, such as the keeper of an always-on source
                await self.retry(scope, row["task_id"], by=by)
        return {int(row["execution_id"]) for row in rows if not row["dedupe_key"].startswith(PREFIX)}

    async def _change(
        self,
        scope: Scope,
        task_id: str,
        mode: Any,
        decided: Callable[[TaskRow], tuple[str, dict[str, Any], str | None] | None],
    ) -> TaskRow:
        stream = identity.task_stream(scope, task_id)
        for _ in range(_TRIES):
            async with self._database.transaction(scope) as connection:
                # The version before the row: what happens in between shows as a conflict.
                version = await connection.fetchval(
                    "SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id
                )
                task = await read_task(connection, task_id)
            said = decided(task)
            if said is None:
                return task
            event_type, meta, error = said
            draft = self._drafting.one(
                scope, stream, task.execution_id, event_type, stream.stream_id, node_name=task.job,
                meta=meta, error=error,
            )  # fmt: skip
            fence = Fence("task", 0, task_id, 0, None, mode)
            try:
                await self._ledger.transact(Transition((Append(stream, [draft], version),), (fence,)))
            except (VersionConflict, LeaseLost):
                continue
            self._recorded(scope, task.execution_id)
            return task
        raise Conflict(f"task {task_id} keeps changing; try again")
