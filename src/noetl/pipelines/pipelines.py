"""DAGs from files to served data: planned, deployed, built, activated, rolled back, started. Others do the tasks."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from noetl.errors import InputError, NotFound
from noetl.model.stream import Scope
from noetl.pipelines.catalog.dags.bundles import Bundle
from noetl.pipelines.catalog.dags.registry import Dags, Deployed, Switched
from noetl.pipelines.catalog.dags.rows import DagVersion
from noetl.pipelines.catalog.dags.status import DagStatus
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.plan.deploy.values import DeployPlan
from noetl.pipelines.tasks.engine import TaskEngine
from noetl.pipelines.tasks.run_states import Run
from noetl.pipelines.tasks.runs import RunEnd

LOOK_SECONDS: Final = 1.0
"""How often one looks whether a run that another process drives has ended."""


class Cutover(msgspec.Struct, frozen=True, kw_only=True):
    """A version that serves readers now, and what followed from it."""

    switched: Switched
    cancelled: tuple[str, ...] = ()
    """Tasks that nobody needs any more."""
    caught_up: int | None = None
    """The run that works off what came in while the version was built; None if nothing did."""


class Pipelines:
    """What people do with the DAGs of one organization."""

    def __init__(self, scope: Scope, dags: Dags, datasets: Datasets, engine: TaskEngine) -> None:
        self._scope = scope
        self.dags = dags
        self.datasets = datasets
        self.engine = engine
        engine.runs.before_end = self._before_end

    async def plan(self, bundle: Bundle) -> DeployPlan:
        """Say what a deploy of these files would do."""
        return await self.dags.plan(self._scope, bundle)

    async def deploy(self, bundle: Bundle, requested_by: str) -> Deployed:
        """Make a version of these files and begin to build it; what stands already is left alone."""
        deployed = await self.dags.deploy(self._scope, bundle, requested_by)
        if deployed.created:
            await self.engine.runs.build(self._scope, deployed.execution_id, deployed.dag_version_id)
        return deployed

    async def finished(self, execution_id: int) -> RunEnd:
        """Wait until a run has nothing left to do."""
        while True:
            seen = self.engine.runs.ended.number
            end = await self.engine.runs.settle(self._scope, execution_id)
            if end.status != "open":
                return end
            await self.engine.runs.ended.wait(seen, LOOK_SECONDS)

    async def activate(self, dag: str, version: str | None, by: str) -> Cutover:
        """Let a version serve readers: the newest that is ready unless told."""
        chosen = version or await self._newest_ready(dag)
        return await self._after(await self.dags.activate(self._scope, dag, chosen, by=by), by)

    async def rollback(self, dag: str, to: str | None, by: str) -> Cutover:
        """Let an earlier version serve readers again: the one before unless told."""
        await self._versions(dag)
        chosen = None if to is None else (await self.dags.version(self._scope, dag, to)).dag_version_id
        return await self._after(await self.dags.rollback(self._scope, dag, chosen, by=by), by)

    async def emit(self, dag: str, jobs: tuple[str, ...], by: str) -> dict[str, int]:
        """Start source jobs of a DAG, all that are started by hand unless told, and return their runs."""
        current = await self.dags.current(self._scope, dag)
        if current is None:
            raise InputError(f"no version of DAG {dag} serves readers yet", hint=f"noetl dag activate {dag}")
        if not jobs:
            standing = await self.dags.jobs(self._scope, current.dag_version_id)
            jobs = tuple(
                row.name
                for row in standing
                if row.definition.activation == "source"
                and (row.definition.source is None or row.definition.source.kind == "manual")
            )
        runs = await asyncio.gather(*(self.engine.runs.emit(self._scope, dag, job, requested_by=by) for job in jobs))
        return dict(zip(jobs, runs, strict=True))

    async def status(self, dag: str, version: str | None = None) -> DagStatus:
        """Say how far a version is."""
        return await self.dags.status(self._scope, dag, version)

    async def newest_unready(self, dag: str) -> str:
        """Return the newest version whose build has not ended well."""
        for version in await self._versions(dag):
            if version.status in ("building", "failed"):
                return version.dag_version_id
        raise InputError(
            f"no version of DAG {dag} waits to be ready", hint=f"`noetl dag list {dag}` shows its versions"
        )

    async def newest(self, dag: str) -> DagVersion:
        """Return the version that was deployed last."""
        return (await self._versions(dag))[0]

    async def _newest_ready(self, dag: str) -> str:
        for version in await self._versions(dag):
            if version.status in ("ready", "active"):
                return version.dag_version_id
        raise InputError(
            f"no version of DAG {dag} is ready", hint=f"`noetl dag status {dag}` shows what its build waits for"
        )

    async def _versions(self, dag: str) -> list[DagVersion]:
        versions = await self.dags.versions(self._scope, dag)
        if not versions:
            raise NotFound(f"there is no DAG {dag}", hint="`noetl dag list` shows what is deployed")
        return versions

    async def _after(self, switched: Switched, by: str) -> Cutover:
        """Cancel what nobody needs any more, and start what came in for the new version while the old one served."""
        if not switched.changed:
            return Cutover(switched=switched)
        cancelled = await self.engine.by_hand.cancel_unused(self._scope, by=by)
        caught_up = await self.engine.runs.catch_up(self._scope, switched.dag, switched.dag_version_id, requested_by=by)
        return Cutover(switched=switched, cancelled=tuple(cancelled), caught_up=caught_up)

    async def _before_end(self, scope: Scope, run: Run, error: str | None) -> None:
        """Mark a version ready, or failed, when its build has nothing left to do."""
        if run.kind != "deploy" or run.dag_version_id is None:
            return
        by = f"execution/{run.execution_id}"
        if error is None:
            try:
                await self.dags.mark_ready(scope, run.dag, run.dag_version_id, by=by)
            except InputError as problem:
                error = problem.message
        if error is not None:
            await self.dags.mark_failed(scope, run.dag, run.dag_version_id, error, by=by)
