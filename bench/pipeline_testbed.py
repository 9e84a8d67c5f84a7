"""The testbed pipeline figures are measured on: a whole runtime with workers of tasks in this process, as `noetl dag` has."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import asyncpg

from bench.database_testbed import folder_for_server
from noetl.pipelines.catalog.dags.bundles import read_bundle
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.engine import open_engine
from noetl.runtime.assembly.pipelines import lake_of, open_pipelines, open_task_worker
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime


class PipelineTestbed:
    """Pipelines with a worker, and the way to the bare database and the bare files."""

    def __init__(self, folder: Path, runtime: Runtime, pipelines: Pipelines, server: EmbeddedServer) -> None:
        self.folder = folder
        self.runtime = runtime
        self.pipelines = pipelines
        self._server = server

    async def bare(self) -> asyncpg.Connection:
        """Open a connection of the database's owner, bound to the organization."""
        own = self.runtime.scope
        bound = {"noetl.tenant": own.tenant_id, "noetl.organization": own.organization_id}
        return await asyncpg.connect(self._server.url(), server_settings=bound)

    async def bare_pool(self, size: int) -> Any:
        """Open a pool of the database's owner."""
        return await asyncpg.create_pool(self._server.url(), min_size=size, max_size=size)

    async def deploy(self, dag: str, **files: str) -> str:
        """Deploy a DAG, build it whole, let it serve, and return its version."""
        folder = self.folder / "dag"
        folder.mkdir(exist_ok=True)
        (folder / "dag.yaml").write_text(textwrap.dedent(dag))
        for name, text in files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        deployed = await self.pipelines.deploy(read_bundle(folder / "dag.yaml"), "bench")
        await self.finished(deployed.execution_id)
        await self.pipelines.activate(deployed.plan.dag, deployed.dag_version_id, "bench")
        return deployed.dag_version_id

    async def emitted(self, dag: str, job: str) -> int:
        """Start a source job, wait until all that follows has ended well, and return the run."""
        (execution_id,) = (await self.pipelines.emit(dag, (job,), "bench")).values()
        await self.finished(execution_id)
        return execution_id

    async def finished(self, execution_id: int) -> None:
        """Wait for a run's good end."""
        end = await self.pipelines.finished(execution_id)
        if end.status != "completed":
            raise RuntimeError(f"run {execution_id} {end.status}: {end.error}")

    async def files(self, name: str) -> dict[str, list[str]]:
        """Return the files of a dataset's current generation by partition, as Spark calls them."""
        scope, lake = self.runtime.scope, lake_of(self.runtime.settings)
        view = await self.pipelines.datasets.view(scope, name)
        manifests = await self.pipelines.datasets.manifests(scope, view.partitions)
        return {one.partition_key: [lake.address(entry.path) for entry in one.files] for one in manifests}

    async def span(self, execution_id: int, job: str) -> float:
        """Return the seconds from the first claim of a job's tasks in a run until the last of its outputs was routed."""
        connection = await self.bare()
        try:
            seconds = await connection.fetchval(_SPAN, execution_id, job)
        finally:
            await connection.close()
        return float(seconds)


_SPAN = """
SELECT extract(epoch FROM greatest(
    (SELECT max(t.ended_at) FROM noetl.task AS t WHERE t.execution_id = $1 AND t.job = $2),
    (SELECT max(o.processed_at) FROM noetl.outbox AS o JOIN noetl.partition_version AS p
        ON o.payload ->> 'dataset_version' = p.dataset_version::text
       AND o.payload ->> 'partition_key' = p.partition_key AND (o.payload ->> 'version')::bigint = p.version
     JOIN noetl.task AS t ON t.task_id = p.task_id
     WHERE o.execution_id = $1 AND o.kind = 'route_event' AND t.job = $2))
  - (SELECT min(t.started_at) FROM noetl.task AS t WHERE t.execution_id = $1 AND t.job = $2))
"""


@asynccontextmanager
async def open_pipeline_testbed(*, worker: bool = True, **settings: Any) -> AsyncIterator[PipelineTestbed]:
    """Give pipelines, with a worker unless told, on a fresh embedded database with its shipped, durable settings."""
    folder = folder_for_server()
    own = Settings.model_validate({"runtime": {"home": str(folder / "home")}, **settings})
    try:
        async with (
            open_runtime(own) as runtime,
            open_pipelines(runtime, "bench") as pipelines,
            open_engine(runtime, "bench") as engine,
            open_task_worker(runtime, pipelines, engine) if worker else nullcontext(),
        ):
            with EmbeddedServer(own.runtime.home) as server:
                yield PipelineTestbed(folder, runtime, pipelines, server)
    finally:
        EmbeddedServer(own.runtime.home).destroy()
        shutil.rmtree(folder)
