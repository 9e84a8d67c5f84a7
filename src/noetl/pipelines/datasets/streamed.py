"""Datasets that a streaming program writes, batch by batch: each commit is a task of a source job of a DAG of ours.

How far the program has come is the job's state, saved with the files themselves: a batch that is written again, or by
two at once, is committed once. The tasks are claimed as they are made, so that no other worker ever sees them wait.
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.dispatch.drafts import Drafting
from noetl.errors import Conflict, InputError, LeaseLost, NoetlError, NotFound, VersionConflict
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.mark import Mark
from noetl.model.stream import Scope, execution_stream
from noetl.model.task import PartitionWrite, TaskGrant, TaskLease, TaskReport, TaskTarget
from noetl.pipelines.catalog.dags.bundles import Bundle, read_bundle
from noetl.pipelines.pipelines import Pipelines
from noetl.pipelines.plan import identity
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.pipelines.tasks.port import BaseMoved
from noetl.pipelines.tasks.routing.creation import Creating

PREFIX: Final = "streamed:"
"""How the keys of these tasks begin; by it their bookkeeping is told from what others did."""
BEAT_SECONDS: Final = 5.0
_TRIES: Final = 1000
_WAIT_SECONDS: Final = 1.0
_JOBS: Final = "SELECT name, job_id::text AS job_id FROM noetl.job WHERE dag_version_id = $1"
_STATE: Final = "SELECT state FROM noetl.operator_state WHERE generation = $1 AND state_key = 'default'"
_STATUS: Final = "SELECT status FROM noetl.task WHERE task_id = $1"
_NEWS: Final = f"""
SELECT EXISTS (
    SELECT FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS w (shard, first, last) CROSS JOIN LATERAL (
        SELECT FROM noetl.event AS e WHERE e.shard = w.shard AND e.position > w.first AND e.position <= w.last
          AND NOT EXISTS (SELECT FROM noetl.task AS t WHERE t.execution_id = e.execution_id
                          AND t.dedupe_key >= '{PREFIX}' AND t.dedupe_key < 'streamed;')
        LIMIT 1
    ) AS other)
"""  # noqa: S608 - constants


class CommitLost(Conflict):
    """Another process committed first, or the lease was lost: nothing of this attempt is visible."""

    code = "commit_lost"


class Streamed:
    """The streamed datasets of one organization, as one process writes them."""

    def __init__(
        self,
        scope: Scope,
        pipelines: Pipelines,
        database: Database,
        ledger: Ledger,
        payloads: PayloadStore,
        mint: Callable[[], int],
        mint_many: Callable[[int], list[int]],
        producer: str,
    ) -> None:
        self._scope = scope
        self._pipelines = pipelines
        self._database = database
        self._ledger = ledger
        self._mint = mint
        self._producer = producer
        self._drafting = Drafting(mint_many, producer)
        self._creating = Creating(database, ledger, payloads, self._drafting)
        self._tasks = pipelines.engine.tasks(scope)
        self._heartbeats: Heartbeats[TaskLease] = Heartbeats(
            self._tasks, every_seconds=BEAT_SECONDS, clock=asyncio.get_running_loop().time
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streamed]:
        """Keep the leases of attempts under way for the time of the block."""
        self._heartbeats.start()
        try:
            yield self
        finally:
            await self._heartbeats.stop()

    async def deploy(self, bundle: Bundle, by: str) -> dict[str, JobFacts]:
        """Make sure that a version of these files stands and is ready; return its jobs by name. Nothing is activated."""
        deployed = await self._pipelines.deploy(bundle, by)
        jobs = await self._jobs(deployed.dag_version_id)
        version = await self._pipelines.dags.version(self._scope, bundle.dag.name, deployed.dag_version_id)
        if version.ready_at is None:
            await self._build(deployed.execution_id, list(jobs.values()))
        return jobs

    async def serve(self, facts: JobFacts, by: str) -> None:
        """Let the version of a job serve readers, if it does not yet."""
        await self._pipelines.activate(facts.dag, facts.dag_version_id, by)

    async def serving(self, dag: str) -> dict[str, JobFacts]:
        """Return the jobs of the version that serves readers, by name; none before there is one."""
        current = await self._pipelines.dags.current(self._scope, dag)
        return {} if current is None else await self._jobs(current.dag_version_id)

    async def state(self, facts: JobFacts) -> dict[str, Any]:
        """Return what the last commit of a job saved; empty before the first."""
        async with self._database.transaction(self._scope) as connection:
            found = await connection.fetchval(_STATE, facts.generation)
        kept: dict[str, Any] = {} if found is None else orjson.loads(found)
        return kept

    async def has_news(self, after: Mark, upto: Mark) -> bool:
        """Tell whether anything happened in the organization between two marks but commits of streamed datasets."""
        if not any(after.positions):
            return any(upto.positions)  # what is archived by now happened, too
        ranges = [
            (shard, first, last)
            for shard, (first, last) in enumerate(zip(after.positions, upto.positions, strict=True))
            if last > first
        ]
        if not ranges:
            return False
        async with self._database.transaction(self._scope) as connection:
            return bool(await connection.fetchval(_NEWS, *(list(column) for column in zip(*ranges, strict=True))))

    async def begin(self, facts: JobFacts, key: str) -> TaskGrant:
        """Begin the attempt at a batch under a key; raises CommitLost if a batch of that key was committed before."""
        for number in range(1, _TRIES):
            dedupe_key = f"{PREFIX}{key}" if number == 1 else f"{PREFIX}{key}:{number}"
            lease = await self._claimed(facts, dedupe_key)
            if lease is not None:
                grant = await self._tasks.fetch(lease)
                self._heartbeats.hold(lease, lease.seconds, lambda: None)
                return grant
            if await self._status(facts, dedupe_key) == "Completed":
                raise CommitLost(f"the batch {key} of job {facts.name} of {facts.dag} was committed before")
        raise Conflict(f"the batch {key} of job {facts.name} of {facts.dag} failed {_TRIES} times")

    async def commit(
        self,
        grant: TaskGrant,
        writes: Sequence[PartitionWrite],
        state: dict[str, Any],
        *,
        dropped: Sequence[tuple[int, str]] = (),
        metrics: dict[str, Any] | None = None,
        rewrites: bool = False,
    ) -> None:
        """Make what an attempt wrote visible, together with the new state, all of it or nothing.

        `rewrites` says that the files take the place of those that stand, also where rows are otherwise appended.
        Raises CommitLost if the state is not the one that the attempt was given.
        """
        if rewrites:
            targets = tuple(msgspec.structs.replace(one, update_strategy="replace") for one in grant.targets)
            grant = msgspec.structs.replace(grant, targets=targets)
        report = TaskReport(
            status="ok",
            writes=tuple(_on_top(write, grant.targets) for write in writes),
            dropped=tuple(dropped),
            operator_state=state,
            metrics=metrics or {},
        )
        try:
            status = await self._tasks.complete(grant, report)
        except (BaseMoved, LeaseLost) as problem:
            await self.give_up(grant, problem.message)
            raise CommitLost(f"job {grant.job} of {grant.dag}: {problem.message}") from problem
        except NoetlError as problem:
            await self.give_up(grant, problem.message)
            raise
        finally:
            self._heartbeats.release(grant.lease)
        if status != "Completed":
            raise CommitLost(
                f"job {grant.job} of {grant.dag}: task {grant.lease.task_id} could not commit its batch",
                hint=f"`noetl tasks show {grant.lease.task_id}` tells why",
            )

    async def give_up(self, grant: TaskGrant, error: str) -> None:
        """Record that nothing came of an attempt; what it wrote is nobody's."""
        self._heartbeats.release(grant.lease)
        with suppress(LeaseLost, NotFound):
            await self._tasks.fail(grant, TaskReport(status="error", error=error, retryable=False))

    async def _jobs(self, dag_version_id: str) -> dict[str, JobFacts]:
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_JOBS, dag_version_id)
        return {row["name"]: await self._pipelines.engine.jobs.get(self._scope, row["job_id"]) for row in rows}

    async def _build(self, execution_id: int, jobs: Sequence[JobFacts]) -> None:
        """End the tasks by which a deploy builds these jobs: there is nothing to build, and no worker may be there."""
        while True:
            for facts in jobs:
                for grant in await self._tasks.claim(
                    self._producer, [facts.definition.runtime], len(jobs), 0.0, like=facts.job_id
                ):
                    await self._tasks.complete(grant, TaskReport(status="ok"))
            end = await self._pipelines.engine.runs.finished(self._scope, execution_id, _WAIT_SECONDS)
            if end.status == "completed":
                return
            if end.status != "open":
                raise InputError(f"DAG {jobs[0].dag} could not be built: {end.error}")

    async def _claimed(self, facts: JobFacts, dedupe_key: str) -> TaskLease | None:
        """Make a task with its run and claim it, as one change; None if there is one of that key."""
        scope, execution_id = self._scope, self._mint()
        task = await self._pipelines.engine.routing.emission(scope, facts, dedupe_key)
        lease = TaskLease(task_id=task.task_id, attempt=1, token=str(uuid.uuid4()), seconds=facts.lease_seconds)
        created = await self._creating.append(scope, execution_id, facts, task)
        meta = {
            "attempt": 1, "worker": self._producer, "lease_token": lease.token, "lease_seconds": lease.seconds,
        }  # fmt: skip
        claimed = self._drafting.one(
            scope, created.stream, execution_id, "task.claimed", created.stream.stream_id, node_name=facts.name,
            causation_id=created.drafts[0].event_id, meta=meta,
        )  # fmt: skip
        begun = created._replace(drafts=[*created.drafts, claimed])
        try:
            await self._ledger.transact(Transition((self._requested(facts, execution_id), begun)))
        except VersionConflict:
            return None
        return lease

    def _requested(self, facts: JobFacts, execution_id: int) -> Append:
        stream = execution_stream(self._scope, execution_id)
        meta = {
            "path": f"dag/{facts.dag}",
            "kind": "emission",
            "dag": facts.dag,
            "dag_version_id": facts.dag_version_id,
            "requested_by": self._producer,
        }
        draft = self._drafting.one(
            self._scope, stream, execution_id, "execution.requested", stream.stream_id, meta=meta,
            idempotency_key=f"{execution_id}/requested",
        )  # fmt: skip
        return Append(stream, [draft], 0)

    async def _status(self, facts: JobFacts, dedupe_key: str) -> str | None:
        async with self._database.transaction(self._scope) as connection:
            found: str | None = await connection.fetchval(_STATUS, identity.task_id(facts.generation, dedupe_key))
        return found


def bundle_of(text: str) -> Bundle:
    """Return a DAG that has no files but its own text."""
    with tempfile.TemporaryDirectory(prefix="noetl-dag-") as directory:
        file = Path(directory, "dag.yaml")
        file.write_text(text)
        return read_bundle(file, operators=())


def _on_top(write: PartitionWrite, targets: Sequence[TaskTarget]) -> PartitionWrite:
    """Return a write that builds on what the attempt was given; the state keeps anybody from coming in between."""
    target = next(one for one in targets if one.output == write.output)
    standing = {part.partition_key: part.version for part in target.parts}
    return msgspec.structs.replace(write, base_version=standing.get(write.partition_key, 0))
