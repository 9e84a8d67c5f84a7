"""DAGs: planned and deployed from uploaded files, made to serve readers, rolled back, started, and how far they are."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from noetl.api.endpoint import READERS, WRITERS, Answer, Call, Routes
from noetl.api.wire import Body, Name, View, combined
from noetl.errors import InputError, KeyReused, NotFound
from noetl.model.ids import Id64
from noetl.model.payload_ref import PayloadRef
from noetl.pipelines.catalog.dags.bundles import Bundle, uploaded_bundle
from noetl.pipelines.catalog.dags.registry import Deployed, Serving
from noetl.pipelines.catalog.dags.rows import DagVersion, PublicDagVersion
from noetl.pipelines.catalog.dags.status import JobStatus
from noetl.pipelines.pipelines import Cutover
from noetl.pipelines.plan.deploy.values import DeployPlan, VersionStatus
from noetl.pipelines.tasks.run_states import read_run
from noetl.pipelines.tasks.runs import RunEnd

routes = Routes("dags")

_SLICE_SECONDS = 1.0
"""How long one waits before looking whether the caller is still there."""


class DagPageQuery(Body, frozen=True, kw_only=True):
    """Which page to give."""

    cursor: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class DagVersionQuery(Body, frozen=True, kw_only=True):
    """Which version is meant, by its id or the beginning of it."""

    version: Name | None = None


class RunQuery(Body, frozen=True, kw_only=True):
    """How long to wait for the end."""

    wait: Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for the run's end.")] = 0.0


class BundleRequest(Body, frozen=True, kw_only=True):
    """A DAG with its files: a zip with `dag.yaml` at its root."""

    bundle: bytes


class DagVersionRequest(Body, frozen=True, kw_only=True):
    """Which version is meant, by its id or the beginning of it; the obvious one unless told."""

    version: Name | None = None


class EmitRequest(Body, frozen=True, kw_only=True):
    """Which source job to start."""

    job: Name


class DagView(View, frozen=True, kw_only=True):
    """A DAG with the version that serves readers and the newest one."""

    dag: str
    current: str | None
    newest: str
    newest_status: VersionStatus
    versions: int


class DagPage(View, frozen=True, kw_only=True):
    """DAGs by name; `next_cursor` is null on the last page."""

    dags: list[DagView]
    next_cursor: str | None


class DagVersionView(PublicDagVersion, frozen=True, kw_only=True):
    """One version of a DAG, and how far it is."""

    bundle: PayloadRef


class DagVersionPage(View, frozen=True, kw_only=True):
    """Versions of a DAG, the newest first; `next_cursor` is null on the last page."""

    versions: list[DagVersionView]
    next_cursor: str | None


class DagStatusView(View, frozen=True, kw_only=True):
    """One version of a DAG, job by job."""

    version: DagVersionView
    current: str | None
    jobs: tuple[JobStatus, ...]
    obstacles: tuple[str, ...]
    """What is missing before the version can be ready."""


class DeployAnswer(Deployed, frozen=True, kw_only=True):
    """The version these files stand for; `created` is false when it stood already."""

    dag: str
    warnings: tuple[str, ...]


class CutoverAnswer(Serving, frozen=True, kw_only=True):
    """The version that serves readers now, and what followed from it."""

    cancelled: tuple[str, ...]
    """Tasks that nobody needs any more."""
    caught_up: Id64 | None
    """The run that works off what came in meanwhile; null if nothing did."""


class RunAnswer(RunEnd, frozen=True, kw_only=True):
    """How a run stands: `open`, `completed`, `failed` or `cancelled`."""

    dag: str


@routes.get("/api/dags", READERS)
async def list_dags(call: Call, query: DagPageQuery) -> DagPage:
    """List the DAGs by name."""
    dags = call.pipelines().dags
    names = [name for name in await dags.names(call.scope) if query.cursor is None or name > query.cursor]
    page = names[: query.limit]
    found = []
    for name in page:
        versions = await dags.versions(call.scope, name)
        found.append(
            DagView(
                dag=name,
                current=next((one.dag_version_id for one in versions if one.status == "active"), None),
                newest=versions[0].dag_version_id,
                newest_status=versions[0].status,
                versions=len(versions),
            )
        )
    return DagPage(dags=found, next_cursor=page[-1] if len(names) > len(page) else None)


@routes.post("/api/dags/plan", READERS, repeatable=True)
async def plan_dag(call: Call, body: BundleRequest) -> DeployPlan:
    """Say what a deploy of these files would create, rebuild and keep, and why; nothing is changed."""
    pipelines = call.pipelines()
    return await pipelines.plan(await _uploaded(call, body))


@routes.post("/api/dags/deploy", WRITERS, status=201, keyed=True)
async def deploy_dag(call: Call, body: BundleRequest) -> Answer | DeployAnswer:
    """Make a version of these files and begin to build it; the same files again give the version that stands.

    With an Idempotency-Key, a second request under the same key gets the first one's answer.
    """
    pipelines = call.pipelines()
    bundle = await _uploaded(call, body)
    key = call.key

    async def deploy() -> tuple[str, DeployAnswer]:
        deployed = await pipelines.deploy(bundle, call.caller.name)
        warnings = tuple(str(warning) for warning in bundle.warnings)
        return bundle.digest, combined(DeployAnswer, deployed, dag=bundle.dag.name, warnings=warnings)

    digest, answer = (
        await deploy() if key is None else await call.services.leased.once(("deploy", call.scope, key), deploy)
    )
    if digest != bundle.digest:
        raise KeyReused(
            f"the key {key!r} stands for the deploy of other files, as version {answer.dag_version_id} of {answer.dag}",
            hint="use a new key for every new request",
        )
    return Answer(answer, 201 if answer.created else 200)


@routes.get("/api/dags/{dag}/versions", READERS)
async def list_dag_versions(call: Call, dag: str, query: DagPageQuery) -> DagVersionPage:
    """List the versions of a DAG, the newest first."""
    versions = await call.pipelines().dags.versions(call.scope, dag)
    if not versions:
        raise NotFound(f"there is no DAG {dag}", hint="GET /api/dags shows what is deployed")
    if query.cursor is not None:
        places = [place for place, one in enumerate(versions) if one.dag_version_id == query.cursor]
        if not places:
            raise InputError(f"the cursor {query.cursor[:80]!r} names no version of DAG {dag}")
        versions = versions[places[0] + 1 :]
    page = versions[: query.limit]
    more = len(versions) > len(page)
    return DagVersionPage(
        versions=[_version(one) for one in page], next_cursor=page[-1].dag_version_id if more else None
    )


@routes.get("/api/dags/{dag}/status", READERS)
async def get_dag_status(call: Call, dag: str, query: DagVersionQuery) -> DagStatusView:
    """Say how far a version is, job by job: the newest under way, else the current one, unless told."""
    status = await call.pipelines().status(dag, query.version)
    return combined(DagStatusView, status, version=_version(status.version))


@routes.get("/api/dags/{dag}/runs/{execution_id}", READERS, waits=True)
async def get_dag_run(call: Call, dag: str, execution_id: int, query: RunQuery) -> RunAnswer:
    """Say whether a build or an emission has nothing left to do, waiting for it if asked."""
    runs = call.pipelines().engine.runs
    async with call.services.database.transaction(call.scope) as connection:
        run = await read_run(connection, call.scope, execution_id)
    if run.dag != dag:
        raise NotFound(f"execution {execution_id} is no run of DAG {dag}")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + query.wait
    while True:
        left = max(0.0, deadline - loop.time())
        end = await runs.finished(call.scope, execution_id, min(left, _SLICE_SECONDS))
        over = left <= _SLICE_SECONDS or call.services.stopping.is_set()
        if end.status != "open" or over or await call.request.is_disconnected():
            return combined(RunAnswer, end, dag=dag)


@routes.post("/api/dags/{dag}/ready", WRITERS, repeatable=True)
async def mark_dag_ready(call: Call, dag: str, body: DagVersionRequest | None = None) -> DagVersionView:
    """Say that a version is built whole, the newest that is not ready unless told; refused while something is missing."""
    pipelines = call.pipelines()
    version = (None if body is None else body.version) or await pipelines.newest_unready(dag)
    return _version(await pipelines.dags.mark_ready(call.scope, dag, version, by=call.caller.name))


@routes.post("/api/dags/{dag}/activate", WRITERS, repeatable=True)
async def activate_dag(call: Call, dag: str, body: DagVersionRequest | None = None) -> CutoverAnswer:
    """Let a version serve readers, all its datasets at once: the newest that is ready unless told."""
    version = None if body is None else body.version
    return _cutover(await call.pipelines().activate(dag, version, call.caller.name))


@routes.post("/api/dags/{dag}/rollback", WRITERS)
async def roll_dag_back(call: Call, dag: str, body: DagVersionRequest | None = None) -> CutoverAnswer:
    """Let an earlier version serve readers again, at once: the one before unless told."""
    version = None if body is None else body.version
    return _cutover(await call.pipelines().rollback(dag, version, call.caller.name))


@routes.post("/api/dags/{dag}/emit", WRITERS, status=201, keyed=True)
async def emit_dag(call: Call, dag: str, body: EmitRequest) -> RunAnswer:
    """Start a source job of the version that serves readers; whatever reads it follows.

    With an Idempotency-Key, a second request under the same key gives the run the first one started.
    """
    return await emitted(call, dag, body.job)


async def emitted(call: Call, dag: str, job: str) -> RunAnswer:
    """Start a source job and return its run."""
    runs = call.pipelines().engine.runs
    run = await runs.emit(call.scope, dag, job, requested_by=call.caller.name, key=call.key)
    return RunAnswer(execution_id=run, dag=dag, status="open", error=None)


async def _uploaded(call: Call, body: BundleRequest) -> Bundle:
    """Read uploaded files in a thread; one organization has one of them at a time, so none waits for another's."""
    evaluating = call.services.catalog.plans.evaluating
    return await evaluating.beside(call.scope, lambda: uploaded_bundle(body.bundle))


def _version(version: DagVersion) -> DagVersionView:
    return combined(DagVersionView, version, bundle=version.bundle_ref)


def _cutover(cutover: Cutover) -> CutoverAnswer:
    return combined(CutoverAnswer, cutover.switched, cutover)
