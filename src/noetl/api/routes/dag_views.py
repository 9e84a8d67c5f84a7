"""What the routes of DAGs take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from noetl.api.wire import Body, Name, View
from noetl.catalog.dag_rows import DagVersion
from noetl.catalog.dag_status import DagStatus, JobStatus
from noetl.model.payload_ref import PayloadRef
from noetl.pipelines.pipelines import Cutover
from noetl.plan.deploying_values import DeployPlan, VersionStatus


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


class DagVersionView(View, frozen=True, kw_only=True):
    """One version of a DAG, and how far it is."""

    dag: str
    dag_version_id: str
    status: VersionStatus
    error: str | None
    bundle_digest: str
    code_digest: str
    bundle: PayloadRef
    pointers: dict[str, str]
    publish: dict[str, str]
    built: tuple[str, ...]
    deploy_execution_id: str
    created_at: datetime
    ready_at: datetime | None
    activated_at: datetime | None


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


class DeployAnswer(View, frozen=True, kw_only=True):
    """The version these files stand for; `created` is false when it stood already."""

    dag: str
    dag_version_id: str
    execution_id: str
    created: bool
    plan: DeployPlan
    warnings: list[str]


class CutoverAnswer(View, frozen=True, kw_only=True):
    """The version that serves readers now, and what followed from it."""

    dag: str
    dag_version_id: str
    previous: str | None
    changed: bool
    cancelled: tuple[str, ...]
    """Tasks that nobody needs any more."""
    caught_up: str | None
    """The run that works off what came in meanwhile; null if nothing did."""


class RunAnswer(View, frozen=True, kw_only=True):
    """How a run stands: `open`, `completed`, `failed` or `cancelled`."""

    execution_id: str
    dag: str
    status: str
    error: str | None


def version_view(version: DagVersion) -> DagVersionView:
    """Return a version as callers see it."""
    return DagVersionView(
        dag=version.dag,
        dag_version_id=version.dag_version_id,
        status=version.status,
        error=version.error,
        bundle_digest=version.bundle_digest,
        code_digest=version.code_digest,
        bundle=version.bundle_ref,
        pointers=version.pointers,
        publish=version.publish,
        built=version.built,
        deploy_execution_id=str(version.deploy_execution_id),
        created_at=version.created_at,
        ready_at=version.ready_at,
        activated_at=version.activated_at,
    )


def status_view(status: DagStatus) -> DagStatusView:
    """Return how far a version is, as callers see it."""
    return DagStatusView(
        version=version_view(status.version), current=status.current, jobs=status.jobs, obstacles=status.obstacles
    )


def cutover_view(cutover: Cutover) -> CutoverAnswer:
    """Return a switch as callers see it."""
    switched = cutover.switched
    return CutoverAnswer(
        dag=switched.dag,
        dag_version_id=switched.dag_version_id,
        previous=switched.previous,
        changed=switched.changed,
        cancelled=cutover.cancelled,
        caught_up=None if cutover.caught_up is None else str(cutover.caught_up),
    )
