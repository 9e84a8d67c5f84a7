"""The event lake of one organization, connected to a runtime: synced, followed, verified, compacted, rebuilt, dropped.

One process writes a lake at a time; whatever it is killed at, the next one goes on from what the ledger says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from noetl.errors import Conflict, InputError, NotFound, Unavailable
from noetl.kernel.replay.as_of import AsOf, resolve_organization
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import Streamed, bundle_of
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import lake_of, open_pipelines
from noetl.runtime.settings.spark import spark_options
from noetl.runtime.spark.event_lake.answers import Told
from noetl.runtime.spark.event_lake.programs import LakePrograms, ProgramFailed, SparkDrivers
from noetl.runtime.wiring import Runtime
from noetl.services.retention.lake_prefix import LakePrefixes
from noetl.spark.drivers.pool import Drivers
from noetl.spark.event_lake.definition import DAG, JOB, day_of, lake_dag, mark_of, next_state
from noetl.spark.event_lake.facts.catalogue import facts_dag

_log = logging.getLogger(__name__)

SYNC: Final = "noetl.spark.event_lake.sync:sync"
VERIFY: Final = "noetl.spark.event_lake.verification:verify"
COMPACT: Final = "noetl.spark.event_lake.compaction:compact"
TRIES: Final = 3
"""How often a program is begun again without getting on before that is told."""
AGAIN_SECONDS: Final = 1.0
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"


@asynccontextmanager
async def open_event_lake(runtime: Runtime, role: str = "lake") -> AsyncIterator[EventLake]:
    """Give the event lake of the runtime's organization for the time of the block; Spark starts when it is needed."""
    own = runtime.settings
    drivers = Drivers(
        spark_options(own.spark, own.lake, own.runtime.home),
        live=own.spark.drivers,
        isolate=own.spark.isolation == "organization",
    )
    try:
        async with open_pipelines(runtime, role) as pipelines:
            streamed = Streamed(
                runtime.scope, pipelines, runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint,
                runtime.ids.mint_many, producer_of(runtime, role),
            )  # fmt: skip
            async with streamed.open():
                yield EventLake(runtime, runtime.scope, streamed, drivers)
    finally:
        await drivers.close()


class EventLake:
    """What people do with the event lake of one organization."""

    def __init__(self, runtime: Runtime, scope: Scope, streamed: Streamed, drivers: SparkDrivers) -> None:
        self._runtime = runtime
        self._scope = scope
        self._streamed = streamed
        self._datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
        self._programs = LakePrograms(runtime, scope, self._datasets, streamed, drivers)
        self._own = runtime.settings.event_lake

    async def sync(
        self, *, follow: bool = False, told: Told = lambda progress: None, stop: asyncio.Event | None = None,
        tries: int = TRIES,
    ) -> dict[str, Any]:  # fmt: skip
        """Bring the lake up to the head of the ledger as it is now, or follow it until `stop` is set."""
        async with self.alone():
            job = await self._deployed()
            return await self._synced(job, follow=follow, told=told, stop=stop, tries=tries)

    async def rebuild(self, *, told: Told = lambda progress: None, tries: int = TRIES) -> dict[str, Any]:
        """Write the lake anew beside the one that serves readers, and let it take its place when it is whole."""
        async with self.alone():
            serving = (await self._streamed.serving(DAG)).get(JOB)
            job = await self._deployed(build=1 if serving is None else serving.definition.config["build"] + 1)
            return await self._synced(job, follow=False, told=told, stop=None, tries=tries)

    async def verify(self, upto: Mark | None = None) -> dict[str, Any]:
        """Hold the lake against the ledger up to where it has come, or to a mark before.

        Return counts, checksums and the first difference.
        """
        job = await self._serving()
        reached = mark_of(await self._streamed.state(job))
        if upto is not None and not reached.covers(upto):
            raise InputError(f"the lake has not come as far as {upto}", hint=f"it stands at {reached}: noetl lake sync")
        upto = upto or reached
        arguments = {
            "upto": upto.token(),
            "positions": self._own.verify_positions,
            "partition_events": self._own.partition_events,
        }
        found = await self._programs.run(VERIFY, arguments, {JOB: job})
        return found | {"mark": upto.token(), "equal": found["differing"] == 0}

    async def compact(self, *, told: Told = lambda progress: None) -> dict[str, Any]:
        """Put the small files of each day together."""
        async with self.alone():
            job = await self._serving()
            return await self._programs.run(COMPACT, {"target_bytes": self._own.target_bytes}, {JOB: job}, told=told)

    async def drop(self) -> dict[str, Any]:
        """Let go of all rows and files of the lake; the next sync writes it from the first event on."""
        async with self.alone():
            job = await self._serving()
            (output,) = job.outputs
            parts = await self._datasets.partitions(self._scope, output.dataset_version)
            state = await self._streamed.state(job)
            grant = await self._streamed.begin(job, f"drop {state.get('commits', 0)}")
            after = next_state(state, mark=Mark.zero().token(), epoch=state.get("epoch", 0) + 1)
            await self._streamed.commit(grant, (), after, dropped=[(0, part.partition_key) for part in parts])
            prefixes = LakePrefixes(lake_of(self._runtime.settings), self._scope)
            files = await prefixes.files(output.location)
            await prefixes.delete(output.location, [file.path for file in files])
            return {"partitions": len(parts), "files": len(files), "bytes": sum(file.bytes for file in files)}

    async def status(self) -> dict[str, Any]:
        """Say how far the lake is and what it consists of."""
        job = (await self._streamed.serving(DAG)).get(JOB)
        head = await self._runtime.ledger.head()
        if job is None:
            return {"mark": None, "head": head.token(), "current": False, "days": []}
        state = await self._streamed.state(job)
        mark = mark_of(state)
        (output,) = job.outputs
        parts = await self._datasets.partitions(self._scope, output.dataset_version)
        return {
            "generation": output.dataset_version,
            "location": output.location,
            "mark": mark.token(),
            "head": head.token(),
            "behind": sum(head.positions) - sum(mark.positions),
            "current": not await self._streamed.has_news(mark, head),
            "commits": state.get("commits", 0),
            "days": [
                {"day": day_of(part.partition_key), "rows": part.rows, "bytes": part.bytes, "version": part.version}
                for part in parts
            ],
        }

    async def mark(self, point: str) -> Mark:
        """Return the mark of a point of the history."""
        runtime = self._runtime
        return await resolve_organization(runtime.history, runtime.database, self._scope, AsOf.parse(point))

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be the only one who writes this lake for the time of the block; raises Conflict if another does."""
        name = f"noetl event lake {self._scope.tenant_id}/{self._scope.organization_id}"
        connection = await self._runtime.database.connect()
        try:
            if not await connection.fetchval(_LOCK, name):
                raise Conflict(
                    f"another process writes the event lake of {self._scope.tenant_id}/{self._scope.organization_id}",
                    hint="it may be a `noetl lake sync --follow`: stop it first, or leave the work to it",
                )
            yield
        finally:
            await connection.close()

    async def _deployed(self, build: int | None = None) -> JobFacts:
        if build is None:
            serving = (await self._streamed.serving(DAG)).get(JOB)
            build = 1 if serving is None else serving.definition.config["build"]
        text = lake_dag(self._runtime.upcasters.digest(), build)
        return (await self._streamed.deploy(bundle_of(text), "lake"))[JOB]

    async def _is_current(self, state: dict[str, Any], upto: Mark, jobs: dict[str, JobFacts]) -> bool:
        """Tell whether there is nothing to write, so that Spark need not be started."""
        mark = mark_of(state)
        if await self._streamed.has_news(mark, upto):
            return False
        states = [await self._streamed.state(one) for name, one in jobs.items() if name != JOB]
        return all(mark_of(one) == mark for one in states)

    async def _facts(self) -> dict[str, JobFacts]:
        """Return the jobs of the facts that are kept beside the lake."""
        if not self._own.facts:
            return {}
        jobs = await self._streamed.deploy(bundle_of(facts_dag()), "lake")
        await self._streamed.serve(next(iter(jobs.values())), "lake")
        return jobs

    async def _serving(self) -> JobFacts:
        found = (await self._streamed.serving(DAG)).get(JOB)
        if found is None:
            raise NotFound("there is no event lake yet", hint="noetl lake sync")
        return found

    async def _synced(
        self, job: JobFacts, *, follow: bool, told: Told, stop: asyncio.Event | None, tries: int
    ) -> dict[str, Any]:
        serving = (await self._streamed.serving(DAG)).get(JOB)
        if serving is None:
            await self._streamed.serve(job, "lake")
        elif follow and serving.generation != job.generation:
            # Readers keep what they have until the new one has come as far as it.
            await self._synced(job, follow=False, told=told, stop=stop, tries=tries)
        jobs = {JOB: job} | await self._facts()
        upto = None if follow else await self._runtime.ledger.head()
        found = await self._tried(job, jobs, upto, told=told, stop=stop, tries=tries)
        await self._streamed.serve(job, "lake")
        return found

    async def _tried(
        self,
        job: JobFacts,
        jobs: dict[str, JobFacts],
        upto: Mark | None,
        *,
        told: Told,
        stop: asyncio.Event | None,
        tries: int,
    ) -> dict[str, Any]:
        """Run the program; one whose driver died is begun again, and one that follows whatever it failed by."""
        left, before = tries, await self._streamed.state(job)
        while True:
            try:
                state = await self._streamed.state(job)
                if upto is not None and await self._is_current(state, upto, jobs):
                    return {"batches": 0, "rows": 0, "mark": mark_of(state).token()}
                left, before = (left, before) if state == before else (tries, state)
                return await self._programs.run(SYNC, self._told(job, state, upto, jobs), jobs, told=told, stop=stop)
            except (Unavailable, ProgramFailed) as problem:
                left -= 1
                if left < 1 or (upto is not None and isinstance(problem, ProgramFailed)):
                    raise
                _log.warning("the lake is tried again: %s", problem.message)
                await asyncio.sleep(AGAIN_SECONDS)

    def _told(
        self, job: JobFacts, state: dict[str, Any], upto: Mark | None, jobs: dict[str, JobFacts]
    ) -> dict[str, Any]:
        return {
            "generation": job.generation,
            "epoch": state.get("epoch", 0),
            "after": mark_of(state).token(),
            "upto": None if upto is None else upto.token(),
            "trigger_seconds": self._own.trigger_seconds,
            "batch_events": self._own.batch_events,
            "partition_events": self._own.partition_events,
            "checkpoint": self._own.checkpoint,
            "target_bytes": self._own.target_bytes,
            "compact_files": self._own.compact_files,
            "facts_seconds": self._own.facts_seconds if len(jobs) > 1 else None,
        }
