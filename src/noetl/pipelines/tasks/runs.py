"""Runs of pipelines: builds and emissions are started, and whatever run has nothing left to do is ended, once, by whoever
sees it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.facts.postgres import PostgresFacts
from noetl.engine.dispatch.polling import Signal
from noetl.engine.dispatch.request_keys import request_key, stands_for
from noetl.errors import Conflict, InputError, KeyReused, NoetlError, NotFound
from noetl.faults import reach
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.ids import Id64
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope, execution_stream
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks.actions import TasksByHand
from noetl.pipelines.tasks.jobs import JobFacts, Jobs
from noetl.pipelines.tasks.routing.creation import Creating
from noetl.pipelines.tasks.routing.routes import Routing
from noetl.pipelines.tasks.run_states import Run, given_up, is_busy, open_runs, quiet, read_run

_log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.02
"""Ends of tasks within this time share one look at their run."""
GATHER_MOST_SECONDS: Final = 0.32
"""The same for runs that are still busy after a few looks: they have much to do, and looks at them cost the more."""
_QUICK_LOOKS: Final = 4
LOOK_SECONDS: Final = 1.0
"""How often one looks whether a run that another process drives has ended."""
MOST_WAITED_FOR: Final = 1000
"""Runs that are named in the event of one that waits for them: the newest, since an event has bounds."""

_SCOPES: Final = "SELECT DISTINCT tenant_id, organization_id FROM noetl.dag_version"
_SOURCE: Final = """
SELECT j.job_id::text AS job_id, j.activation
FROM noetl.dag_current_version AS c JOIN noetl.job AS j USING (tenant_id, organization_id, dag_version_id)
WHERE c.dag = $1 AND j.name = $2
"""
_BEGUN: Final = """
SELECT execution_id FROM noetl.task WHERE task_id = $1
UNION ALL SELECT execution_id FROM noetl.idempotency_key WHERE key = $2 AND expires_at > now() LIMIT 1
"""


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run came out, or that it is open."""

    execution_id: Id64
    status: Literal["open", "completed", "failed", "cancelled"]
    error: str | None


async def _nothing(scope: Scope, run: Run, error: str | None) -> None:
    """Do nothing before a run ends."""


class Runs:
    """The runs of one database. `before_end` is told of a quiet run and of its first failure before its end is recorded."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        drafting: Drafting,
        mint: Callable[[], int],
        jobs: Jobs,
        creating: Creating,
        routing: Routing,
        by_hand: TasksByHand,
        recorded: Callable[[Scope, int], None],
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = drafting
        self._mint = mint
        self._jobs = jobs
        self._creating = creating
        self._routing = routing
        self._by_hand = by_hand
        self._recorded = recorded
        self.before_end: Callable[[Scope, Run, str | None], Awaitable[None]] = _nothing
        self.ended = Signal()
        """Touched when a run ends in this process."""
        self._noted: set[tuple[Scope, int]] = set()
        self._settling: asyncio.Task[None] | None = None

    async def emit(self, scope: Scope, dag: str, job: str, *, requested_by: str, key: str | None = None) -> int:
        """Start a source job of a DAG's current version and return the run; a key asked for again gives the same run."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(_SOURCE, dag, job)
        if row is None:
            raise NotFound(f"the current version of DAG {dag} has no job {job}", hint=f"see `noetl dag status {dag}`")
        if row["activation"] != "source":
            raise InputError(f"job {job} of {dag} is started by what it reads, not by hand")
        facts = await self._jobs.get(scope, row["job_id"])
        if facts.definition.source is not None and facts.definition.source.kind == "webhook":
            raise InputError(f"job {job} of {dag} is started by what is sent to it, not by hand")
        execution_id = self._mint() if key is None else await self._keyed(scope, key)
        task = await self._routing.emission(scope, facts, identity.emission_key(execution_id))
        requested = self._requested(scope, execution_id, dag, facts.dag_version_id, requested_by, key)
        created = await self._creating.append(scope, execution_id, facts, task)
        reach("run.before_request")
        try:
            await self._ledger.transact(Transition((requested, created)))
        except (KeyReused, Conflict):
            if key is None:
                raise
            return await self._keyed(scope, key)
        reach("run.after_request")
        self._recorded(scope, execution_id)
        return execution_id

    async def start_once(
        self,
        scope: Scope,
        facts: JobFacts,
        dedupe_key: str,
        *,
        requested_by: str,
        key: str | None = None,
        sent: PayloadRef | None = None,
    ) -> tuple[int, bool]:
        """Start a source under a key that stands once in its generation; return the run, and whether this call began it.

        `key` besides keeps it once for a while whatever the generation is; `sent` is what starts it.
        """
        task = await self._routing.emission(scope, facts, dedupe_key)
        execution_id = self._mint()
        requested = self._requested(scope, execution_id, facts.dag, facts.dag_version_id, requested_by, key)
        created = await self._creating.append(scope, execution_id, facts, task, sent=sent)
        reach("run.before_request")
        try:
            await self._ledger.transact(Transition((requested, created)))
        except (KeyReused, Conflict):
            async with self._database.transaction(scope) as connection:
                found = await connection.fetchval(_BEGUN, task.task_id, key and f"request/{key}")
            if found is None:
                raise
            return int(found), False
        reach("run.after_request")
        self._recorded(scope, execution_id)
        return execution_id, True

    async def build(self, scope: Scope, execution_id: int, dag_version_id: str) -> list[str]:
        """Start what a deploy has to build, and what an earlier try at the same version gave up; return the tasks."""
        async with self._database.transaction(scope) as connection:
            again = await given_up(connection, dag_version_id)
        for task_id in again:
            with suppress(Conflict):
                await self._by_hand.retry(scope, task_id, by=f"execution/{execution_id}")
        created = await self._routing.build(scope, execution_id, dag_version_id)
        self._recorded(scope, execution_id)
        return [*again, *created]

    async def catch_up(self, scope: Scope, dag: str, dag_version_id: str, *, requested_by: str) -> int | None:
        """Start, in a run of its own, whatever tasks of a version are wanted and not there; None if there are none.

        After another version was activated this takes up what changed while it was not: nothing is lost in between. Tasks
        that come back with their generation stay in their own runs; the new run ends after those are quiet.
        """
        back = await self._by_hand.bring_back(scope, dag_version_id, by=requested_by)
        if not back and not await self._routing.missing(scope, dag_version_id):
            return None
        execution_id = self._mint()
        requested = self._requested(scope, execution_id, dag, dag_version_id, requested_by, None, waits_for=back)
        await self._ledger.transact(Transition((requested,)))
        await self._routing.reconcile(scope, execution_id, dag_version_id)
        self._recorded(scope, execution_id)
        return execution_id

    def _requested(
        self,
        scope: Scope,
        execution_id: int,
        dag: str,
        dag_version_id: str,
        requested_by: str,
        key: str | None,
        waits_for: Collection[int] = (),
    ) -> Append:
        stream = execution_stream(scope, execution_id)
        meta: dict[str, Any] = {
            "path": f"dag/{dag}",
            "kind": "emission",
            "dag": dag,
            "dag_version_id": dag_version_id,
            "requested_by": requested_by,
        }
        if waits_for:
            meta["waits_for"] = [str(one) for one in sorted(waits_for)[-MOST_WAITED_FOR:]]
        draft = self._drafting.one(
            scope, stream, execution_id, "execution.requested", stream.stream_id, meta=meta,
            idempotency_key=f"{execution_id}/requested" if key is None else request_key(key),
        )  # fmt: skip
        return Append(stream, [draft], 0)

    async def _keyed(self, scope: Scope, key: str) -> int:
        return await stands_for(PostgresFacts(self._database), scope, key) or self._mint()

    async def settle(self, scope: Scope, execution_id: int) -> RunEnd:
        """End a run that has nothing left to do, and say how it stands."""
        async with self._database.transaction(scope) as connection:
            if await is_busy(connection, execution_id):  # by far the most frequent answer, and cheap to find
                return RunEnd(execution_id=execution_id, status="open", error=None)
            run = await read_run(connection, scope, execution_id)
            if run.ended is not None:
                return RunEnd(execution_id=execution_id, status=run.ended, error=run.error)
            found = await quiet(connection, run) if run.kind in {"deploy", "emission"} else None
        if found is None:
            return RunEnd(execution_id=execution_id, status="open", error=None)
        error = found.error
        if run.kind == "deploy" and error is None:
            assert run.dag_version_id is not None
            # Its first tasks are made after the deploy itself: whoever died in between left nothing but this.
            if await self._routing.build(scope, execution_id, run.dag_version_id, complete=True):
                self._recorded(scope, execution_id)
                return RunEnd(execution_id=execution_id, status="open", error=None)
        await self.before_end(scope, run, error)
        await self._end(scope, execution_id, error)
        return RunEnd(execution_id=execution_id, status="completed" if error is None else "failed", error=error)

    async def _end(self, scope: Scope, execution_id: int, error: str | None) -> None:
        stream = execution_stream(scope, execution_id)
        said = "execution.completed" if error is None else "execution.failed"
        draft = self._drafting.one(
            scope, stream, execution_id, said, stream.stream_id, error=error,
            idempotency_key=f"run-ended:{execution_id}",
        )  # fmt: skip
        reach("run.before_end")
        with suppress(Conflict, KeyReused):  # somebody else may have seen it first
            await self._ledger.transact(Transition((Append(stream, [draft], 1),)))
        reach("run.after_end")
        self.ended.touch()

    async def finished(self, scope: Scope, execution_id: int, timeout: float | None = None) -> RunEnd:
        """Wait for the end of a run, whoever ends it; after the timeout say that it is open."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            seen = self.ended.number
            found = await self.settle(scope, execution_id)
            left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - loop.time())
            if found.status != "open" or left <= 0:
                return found
            await self.ended.wait(seen, left)

    def note(self, scope: Scope, execution_id: int) -> None:
        """Look soon whether a run is quiet."""
        self._noted.add((scope, execution_id))
        if self._settling is None or self._settling.done():
            self._settling = asyncio.get_running_loop().create_task(self._settle_noted(), name="noetl-runs")

    async def _settle_noted(self) -> None:
        looks = 0
        while self._noted:
            await asyncio.sleep(min(GATHER_SECONDS * 2 ** max(0, looks - _QUICK_LOOKS), GATHER_MOST_SECONDS))
            looks += 1
            noted, self._noted = self._noted, set()
            for scope, execution_id in sorted(noted, key=lambda one: one[1]):
                if await self._tried(scope, execution_id):
                    looks = 0

    async def _tried(self, scope: Scope, execution_id: int) -> bool:
        try:
            return (await self.settle(scope, execution_id)).status != "open"
        except NotFound:
            return False
        except NoetlError as problem:
            _log.warning("run %d could not be looked at: %s", execution_id, problem.message)
        except Exception:
            _log.exception("run %d could not be looked at", execution_id)
        return False

    async def settle_quiet(self) -> int:
        """Look at every run that is open as projected, so that none is left behind; return how many have ended."""
        async with self._database.transaction(None, "reaper") as connection:
            scopes = [Scope(row[0], row[1]) for row in await connection.fetch(_SCOPES)]
        ended = 0
        for scope in scopes:
            async with self._database.transaction(scope) as connection:
                runs = await open_runs(connection)
            # A change that was routed while another version came to serve may have made tasks that nobody takes.
            await self._by_hand.cancel_unused(scope, by="reaper")
            for execution_id in runs:
                ended += await self._tried(scope, execution_id)
        return ended

    async def close(self) -> None:
        """Finish looking."""
        if self._settling is not None:
            await self._settling
