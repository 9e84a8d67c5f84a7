"""Changes of partitions become tasks of the jobs that read them: the same change routed twice makes nothing twice.

Only generations in a current pointer set, or in one that is being built, are routed. What is wanted is decided anew
from what stands now, so that a change that was overtaken by another costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_tasks import affected, bounded, emitted, wanted
from noetl.pipelines.plan.wanted_values import WantedTask
from noetl.pipelines.tasks.jobs import JobFacts, Jobs
from noetl.pipelines.tasks.outbox import OutboxRow
from noetl.pipelines.tasks.routing.creation import Creating
from noetl.pipelines.tasks.routing.inputs import read_cursors, read_inputs, read_started, read_worked

AT_ONCE: Final = 4
"""Jobs that are looked at together; each holds a connection while it writes through another."""

_READERS: Final = """
SELECT DISTINCT ON (j.generation) j.job_id::text AS job_id
FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
WHERE $1 = ANY (j.input_datasets) AND (
    (v.status IN ('active', 'building', 'ready', 'failed') AND (v.status = 'active' OR v.built ? j.name) AND EXISTS (
        SELECT FROM noetl.dag_version_dataset AS p WHERE p.dag_version_id = j.dag_version_id AND p.dataset_version = $2))
    OR (v.status = 'active' AND EXISTS (
        SELECT FROM noetl.dataset AS d JOIN noetl.dag_current_version AS c ON c.dag = d.producer_dag
        JOIN noetl.dag_version_dataset AS p ON p.dag_version_id = c.dag_version_id
        WHERE d.dataset_uuid = $1 AND d.published AND d.producer_dag <> j.dag AND p.dataset_version = $2)))
ORDER BY j.generation, v.status = 'active' DESC, j.job_id
"""
_JOBS: Final = """
SELECT j.job_id::text AS job_id, j.activation, v.built ? j.name AS built, v.deploy_execution_id
FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
WHERE j.dag_version_id = $1 ORDER BY j.name
"""


class Routing:
    """Routes within one database."""

    def __init__(self, database: Database, payloads: PayloadStore, jobs: Jobs, creating: Creating) -> None:
        self._database = database
        self._payloads = payloads
        self._jobs = jobs
        self._creating = creating
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        """Route changes; those that ask the same of a job are answered together."""
        problems: dict[str, Exception] = {}
        asked: dict[str, list[tuple[OutboxRow, frozenset[str] | None]]] = {}
        readers: dict[tuple[str, str], list[JobFacts]] = {}
        async with self._database.transaction(scope) as connection:
            for row in rows:
                changed = (row.payload["dataset_uuid"], row.payload["dataset_version"])
                if changed not in readers:
                    readers[changed] = await self.readers(connection, scope, *changed)
                for facts in readers[changed]:
                    only = affected(facts.view, changed[0], row.payload["partition_key"])
                    if only is None or only:
                        asked.setdefault(facts.job_id, []).append((row, only))

        async def answer(job_id: str) -> None:
            about = asked[job_id]
            only: set[str] | None = set()
            for _, keys in about:
                only = None if only is None or keys is None else only | keys
            try:
                await self.start(scope, about[0][0].execution_id, await self._jobs.get(scope, job_id), only=only)
            except Exception as problem:
                problems.update({row.outbox_id: problem for row, _ in about})

        await asyncio.gather(*map(answer, asked))
        return problems

    async def readers(
        self, connection: Connection, scope: Scope, dataset_uuid: str, dataset_version: str
    ) -> list[JobFacts]:
        """Return the jobs in use that read a generation of a dataset."""
        found = await connection.fetch(_READERS, dataset_uuid, dataset_version)
        return [await self._jobs.get(scope, one["job_id"], connection) for one in found]

    async def start(
        self,
        scope: Scope,
        execution_id: int,
        facts: JobFacts,
        *,
        only: Collection[str] | None = None,
        invalidation: str | None = None,
    ) -> list[str]:
        """Create the tasks a reactive job wants now, in all partitions or in some, and return their ids."""
        async with self._gate:
            async with self._database.transaction(scope) as connection:
                if facts.view.strategy == "PerUpdate":
                    # Held until the tasks are made: no version of a partition is given to two of them.
                    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", facts.generation)
                    tasks = await self._wanted(connection, scope, facts, only, invalidation)
                    return await self._creating.create(scope, execution_id, facts, tasks)
                tasks = await self._wanted(connection, scope, facts, only, invalidation)
            return await self._creating.create(scope, execution_id, facts, tasks)

    async def _wanted(
        self,
        connection: Connection,
        scope: Scope,
        facts: JobFacts,
        only: Collection[str] | None,
        invalidation: str | None,
    ) -> list[WantedTask]:
        inputs = await read_inputs(connection, facts, only)
        cursors = await read_cursors(connection, scope, self._payloads, facts, inputs)
        known = await read_worked(connection, facts, inputs, only)
        found = wanted(facts.view, inputs, cursors, only=only, known=known, invalidation=invalidation)
        tasks = bounded(facts.view, found)
        started = await read_started(connection, facts, tasks)
        return [task for task in tasks if identity.same_start(task.dedupe_key) not in started]

    async def emission(self, scope: Scope, facts: JobFacts, dedupe_key: str) -> WantedTask:
        """Return the task of a source job for a run, with what it reads pinned."""
        async with self._database.transaction(scope) as connection:
            inputs = await read_inputs(connection, facts, None) if facts.view.inputs else {}
        return emitted(facts.view, inputs, dedupe_key)

    async def build(self, scope: Scope, execution_id: int, dag_version_id: str, *, complete: bool = False) -> list[str]:
        """Create the first tasks of a version's new generations; what they build is routed to the others.

        `complete` says that nothing is under way any more, so that jobs which read rebuilt ones are looked at too.
        """
        jobs = await self._jobs_of(scope, dag_version_id)
        built = {facts.name for facts, row in jobs if row["built"]}
        created: list[str] = []
        for facts, row in jobs:
            if facts.name not in built:
                continue
            if row["activation"] == "source":
                task = await self.emission(scope, facts, identity.build_key(facts.generation))
                created += await self._creating.create(scope, execution_id, facts, [task])
            elif complete or built.isdisjoint(facts.definition.upstream):
                created += await self.start(scope, execution_id, facts)
        return created

    async def reconcile(self, scope: Scope, execution_id: int, dag_version_id: str) -> list[str]:
        """Create whatever tasks of a version's reactive jobs are wanted and not there, as after its activation."""
        created: list[str] = []
        for facts, row in await self._jobs_of(scope, dag_version_id):
            if row["activation"] != "source":
                created += await self.start(scope, execution_id, facts)
        return created

    async def missing(self, scope: Scope, dag_version_id: str) -> list[WantedTask]:
        """Return the tasks `reconcile` would create now."""
        found: list[WantedTask] = []
        for facts, row in await self._jobs_of(scope, dag_version_id):
            if row["activation"] != "source":
                async with self._database.transaction(scope) as connection:
                    found += await self._wanted(connection, scope, facts, None, None)
        return found

    async def _jobs_of(self, scope: Scope, dag_version_id: str) -> list[tuple[JobFacts, Any]]:
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_JOBS, dag_version_id)
            if not rows:
                raise NotFound(f"there is no DAG version {dag_version_id}")
            return [(await self._jobs.get(scope, row["job_id"], connection), row) for row in rows]
