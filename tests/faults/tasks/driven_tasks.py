"""A task engine with a worker whose files are made up, on short leases: what the killed processes and the test itself run."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import LeaseLost
from noetl.model.dataset import Field, FileEntry
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite, TaskGrant, TaskReport
from noetl.pipelines.catalog.dags.bundles import read_bundle
from noetl.pipelines.catalog.dags.registry import Dags, Deployed
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.local import LocalTasks
from noetl.pipelines.tasks.port import BaseMoved
from noetl.pipelines.tasks.run_states import Run
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime

DAYS = ("1", "2", "3")
LEASE_SECONDS = 1
DAG = f"""
name: shop
defaults: {{heartbeat_timeout_seconds: {LEASE_SECONDS}, max_attempts: 5}}
jobs:
  - {{name: orders, operator: made_up, runtime: dispatcher, partition_by: [day]}}
  - {{name: clean, operator: made_up, runtime: dispatcher, partition_by: [day], inputs: [orders]}}
  - name: log
    operator: made_up
    runtime: dispatcher
    inputs: [clean]
    execution_strategy: PerUpdate
    update_strategy: append
    unique_key: [day]
publish: [log]
"""


@dataclass(frozen=True)
class Driven:
    """One process's engine and what it is connected to."""

    runtime: Runtime
    engine: TaskEngine
    dags: Dags

    async def deploy(self, directory: Path) -> Deployed:
        """Deploy the DAG without building anything: that is what the processes are for."""
        file = directory / "dag.yaml"
        file.write_text(DAG)
        return await self.dags.deploy(self.runtime.scope, read_bundle(file, operators={"made_up"}), "test")

    async def before_end(self, scope: Scope, run: Run, error: str | None) -> None:
        """Mark a version as its build came out."""
        if run.kind == "deploy" and run.dag_version_id is not None:
            if error is None:
                await self.dags.mark_ready(scope, run.dag, run.dag_version_id, by="tests")
            else:
                await self.dags.mark_failed(scope, run.dag, run.dag_version_id, error, by="tests")


@asynccontextmanager
async def open_engine(url: str, home: Path, *, works: bool = False) -> AsyncIterator[Driven]:
    """Give a task engine; one that works also drains, reaps, projects and runs the tasks it claims."""
    settings = Settings.model_validate({"runtime": {"home": str(home)}, "database": {"url": url}})
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        producer = producer_of(runtime, "test")
        engine = TaskEngine(
            runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint, runtime.ids.mint_many, producer,
            retry=Backoff(0.0, 0.0), redeliver=Backoff(0.05, 0.05), outbox_lease_seconds=1.0, every_seconds=0.1,
        )  # fmt: skip
        dags = Dags(runtime.database, runtime.ledger, runtime.payloads, runtime.ids.mint, producer)
        driven = Driven(runtime, engine, dags)
        engine.runs.before_end = driven.before_end
        stack.push_async_callback(engine.close)
        if works:
            projector = runtime.projector()
            await projector.start()
            stack.push_async_callback(projector.stop)
            engine.start()
            working = asyncio.create_task(_work(driven))
            stack.push_async_callback(_stopped, working)
        yield driven


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _work(driven: Driven) -> None:
    tasks = driven.engine.tasks(driven.runtime.scope)
    while True:
        for grant in await tasks.claim("worker", ("dispatcher",), 2, 1.0):
            with suppress(LeaseLost):
                await _complete(tasks, grant)


async def _complete(tasks: LocalTasks, grant: TaskGrant) -> None:
    told = report(grant)
    while True:
        try:
            await tasks.complete(grant, told)
        except BaseMoved as moved:
            told = msgspec.structs.replace(
                told,
                writes=tuple(
                    msgspec.structs.replace(write, base_version=moved.parts[0, write.partition_key].version)
                    for write in told.writes
                ),
            )
        else:
            return


def report(grant: TaskGrant) -> TaskReport:
    """Return what a worker would report; what a task writes depends on what it read alone."""
    (target,) = grant.targets
    split = target.partition_by and grant.partition_key == "all"
    keys = [f"day={day}" for day in DAYS] if split else [grant.partition_key]
    read = sorted(part.manifest.sha256 for one in grant.inputs for part in one.parts)
    standing = {part.partition_key: part.version for part in target.parts}
    return TaskReport(
        status="ok",
        writes=tuple(
            PartitionWrite(
                output=0,
                partition_key=key,
                schema=(Field("day", "string"),),
                files=(
                    FileEntry(
                        path=f"{target.location}{key}/commit={grant.lease.task_id}-{grant.lease.attempt}/part-0.parquet",
                        bytes=1,
                        rows=len(read) or 1,
                        sha256=hashlib.sha256("/".join([grant.job, key, *read]).encode()).hexdigest(),
                    ),
                ),
                base_version=standing.get(key, 0),
            )
            for key in keys
        ),
    )
