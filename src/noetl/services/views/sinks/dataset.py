"""The sink that is a dataset: each barrier is a commit, so leases, manifests, generations and queries are those of datasets.

Where rows are grouped, a barrier writes the whole of the view; where they are not, it adds its own. A version is a
generation of the dataset; it serves once it has come as far as it has to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from noetl.errors import InputError
from noetl.faults import reach
from noetl.kernel.ledger.postgres.database import Database
from noetl.language.view.definition import Definition
from noetl.model.event import parse_time, time_text
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite, TaskGrant
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.datasets.streamed import CommitLost, Streamed, bundle_of
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.services.views.barriers import Barrier, Batch, admit, count_late
from noetl.services.views.sinks.port import Held
from noetl.services.views.versions import Version, ViewLease

JOB: Final = "rows"
_FIND: Final = """
SELECT j.job_id::text FROM noetl.job AS j JOIN noetl.dag_version AS v USING (tenant_id, organization_id, dag_version_id)
WHERE v.dag = $1 AND j.definition #>> '{config,view}' = $2 AND j.definition #>> '{config,build}' = $3
ORDER BY v.created_at DESC LIMIT 1
"""


class DatasetSink:
    """The dataset of one version."""

    def __init__(
        self,
        streams: Callable[[], Awaitable[Streamed]],
        jobs: Callable[[Scope, str], Awaitable[JobFacts]],
        datasets: Datasets,
        database: Database,
        scope: Scope,
        version: Version,
        lease: ViewLease | None = None,
    ) -> None:
        self._streams = streams
        self._jobs = jobs
        self._datasets = datasets
        self._opened: Streamed | None = None
        self._database = database
        self._scope = scope
        self._version = version
        self._lease = lease
        self._job: JobFacts | None = None
        self._grant: TaskGrant | None = None

    async def open(self) -> None:
        """Make sure that the dataset's generation is there."""
        self._opened = await self._streams()
        own = self._version.definition
        text = dag_of(own, self._version.digest, self._version.build)
        self._job = (await self._streamed.deploy(bundle_of(text), f"view {own.name}"))[JOB]

    async def standing(self) -> Barrier | None:
        """Return the barrier of the last commit."""
        told = (await self._state()).get("barrier")
        return None if told is None else _barrier(told)

    async def begin(self, batch: Batch) -> TaskGrant | None:
        """Begin the commit of a batch; None if it stands, or if nothing happened in it but commits of ours."""
        standing = await self.standing()
        assert self._job is not None
        after = Mark.zero() if standing is None else Mark.parse(standing.mark)
        if standing is not None and not await self._streamed.has_news(after, Mark.parse(batch.mark)):
            return None
        if standing is not None and not after.covers(Mark.parse(batch.start)):
            # Batches without news were not committed; what lies between holds nothing.
            if await self._streamed.has_news(after, Mark.parse(batch.start)):
                admit(batch, standing, self._version.view)
        elif admit(batch, standing, self._version.view) == "covered":
            return None
        try:
            self._grant = await self._streamed.begin(self._job, f"{batch.start} {batch.mark}")
        except CommitLost:
            return None
        return self._grant

    async def commit(self, batch: Batch, writes: Sequence[PartitionWrite]) -> Barrier:
        """Commit what was written for a batch, with its barrier as the job's state."""
        assert self._job is not None
        assert self._grant is not None
        state = await self._streamed.state(self._job)
        async with self._database.transaction(self._scope) as connection:
            late = await count_late(connection, batch, self._version.definition)
        total = late + int((state.get("barrier") or {}).get("late_total", 0))
        told = {
            "batch": batch.batch, "since": batch.start, "mark": batch.mark, "watermark": batch.watermark, "late": late,
            "late_total": total, "changed": sum(file.rows for write in writes for file in write.files), "removed": 0,
            "checkpoint": batch.checkpoint, "at": time_text(datetime.now(UTC)),
        }  # fmt: skip
        kept = [*state.get("late", []), *([told] if late else [])]
        reach("view.before_apply")
        reach("view.before_commit")
        await self._streamed.commit(self._grant, writes, {"barrier": told, "late": kept}, rewrites=batch.whole)
        reach("view.after_commit")
        self._grant = None
        return _barrier(told)

    async def apply(self, batch: Batch) -> Barrier:
        """Rows of a dataset come as files, never told one by one."""
        raise InputError(f"view {self._version.view} writes a dataset of a dataset", hint="a job of a DAG does that")

    async def held(self) -> Held:
        """Return the barrier and the files; rows are read where files are read."""
        while True:
            state = await self._state()
            told = state.get("barrier")
            if told is None or self._job is None:
                return Held(barrier=None, late=(), rows={})
            found = self._job.outputs[0].dataset_version
            parts = await self._datasets.partitions(self._scope, found)
            columns = await self._datasets.schema(self._scope, found)
            manifests = await self._datasets.manifests(self._scope, parts)
            if await self._state() == state:
                break
        files = [file for manifest in manifests for file in manifest.files]
        stored = {"columns": msgspec.to_builtins(columns), "files": msgspec.to_builtins(files)}
        late = tuple(map(_barrier, state.get("late", [])))
        return Held(barrier=_barrier(told), late=late, rows={}, stored=stored)

    async def _state(self) -> dict[str, Any]:
        """Return what the last commit saved; whoever only looks makes no generation."""
        if self._job is None:
            self._opened = await self._streams()
            async with self._database.transaction(self._scope) as connection:
                own = (f"view_{self._version.view}", self._version.digest, str(self._version.build))
                job_id = await connection.fetchval(_FIND, *own)
            if job_id is None:
                return {}
            self._job = await self._jobs(self._scope, job_id)
        return await self._streamed.state(self._job)

    @property
    def _streamed(self) -> Streamed:
        assert self._opened is not None
        return self._opened

    async def serve(self) -> None:
        """Let readers of the dataset see this generation."""
        assert self._job is not None
        await self._streamed.serve(self._job, f"view {self._version.view}")

    async def clear(self, versions: Sequence[str]) -> None:
        """Generations that no longer serve are let go by retention, as those of any dataset."""

    async def close(self) -> None:
        """Give up a commit that was begun and not made."""
        if self._grant is not None:
            grant, self._grant = self._grant, None
            await self._streamed.give_up(grant, "the run of the view ended")


def dag_of(own: Definition, digest: str, build: int) -> str:
    """Return the DAG whose one job is written by a view; another version makes another generation."""
    return f"""\
name: view_{own.name}
desc: The rows of view {own.name}; `noetl views` writes them.
jobs:
  - name: {JOB}
    operator: noop
    update_strategy: append
    unique_key: [{", ".join(own.keys)}]
    max_attempts: 1
    schema: {{evolve: add_columns}}
    config: {{view: "{digest}", build: {build}}}
publish: {{{own.target_dataset or own.name}: {JOB}}}
"""


def _barrier(told: dict[str, Any]) -> Barrier:
    times = {name: told[name] and parse_time(told[name]) for name in ("watermark", "at")}
    return msgspec.convert({**told, **times}, Barrier)
