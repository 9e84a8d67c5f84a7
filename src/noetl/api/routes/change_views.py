"""What the routes of changing data take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from noetl.api.wire import ID_PATTERN, NO_NUL, Body, Id, Name, Text, View
from noetl.dispatch.changes.backfill_plans import BackfillPlan
from noetl.dispatch.changes.backfill_rows import Backfill, BackfillStatus, Progress
from noetl.dispatch.changes.invalidating import Invalidation
from noetl.dispatch.changes.operator_states import OperatorState
from noetl.dispatch.changes.reconciling import Reconciled
from noetl.model.catalogue.changes import InvalidationReason, InvalidationScope
from noetl.plan.partition_ranges import Selection

_Key = Annotated[str, Meta(min_length=1, max_length=10_000, pattern=NO_NUL)]
_Bound = Annotated[str, Meta(min_length=1, max_length=255, pattern=NO_NUL)]
_Cursor = Annotated[str, Meta(pattern=ID_PATTERN)]
_Limit = Annotated[int, Meta(ge=1, le=500)]


class InvalidateRequest(Body, frozen=True, kw_only=True):
    """What is wrong: a partition, or rows as COLUMN:FROM..TO."""

    partition_key: _Key | None = None
    where: _Key | None = None
    reason: InvalidationReason = "manual"
    note: Text | None = None


class InvalidationsQuery(Body, frozen=True, kw_only=True):
    """Which invalidations to list."""

    status: Literal["open", "closed"] | None = None
    cursor: _Cursor | None = None
    limit: _Limit = 50


class InvalidationView(View, frozen=True, kw_only=True):
    """Rows that were said to be wrong; `tasks` counts what follows by DAG.JOB, `done` what of it is worked off."""

    invalidation_id: Id
    dataset_uuid: str
    dataset_version: str
    dataset: str | None
    scope: InvalidationScope
    partition_key: str | None
    row_filter: dict[str, dict[str, Any]] | None
    reason: InvalidationReason
    note: str | None
    requested_by: str
    tasks: dict[str, int]
    done: dict[str, int]
    status: Literal["open", "closed"]
    closed_because: str | None
    created_at: datetime
    closed_at: datetime | None


class InvalidationPage(View, frozen=True, kw_only=True):
    """Invalidations, the newest first; `next_cursor` is null on the last page."""

    invalidations: list[InvalidationView]
    next_cursor: str | None


class BackfillRequest(Body, frozen=True, kw_only=True):
    """Which partitions to build again; `to` is not part of the range."""

    start: _Bound
    end: _Bound
    step: _Bound | None = None
    partition: dict[str, Text] | None = None
    """Values of other partition columns."""
    max_in_flight: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    dry_run: bool = False
    """Only say what would be done."""


class PlanView(View, frozen=True, kw_only=True):
    """What a backfill does."""

    dataset: str
    dag: str
    job: str
    is_source: bool
    selection: Selection
    total: int
    first: str | None
    last: str | None
    standing: int
    without_input: int
    whole: bool
    following: tuple[str, ...]
    max_in_flight: int
    task_seconds: float | None
    seconds: float | None


class BackfillsQuery(Body, frozen=True, kw_only=True):
    """Which backfills to list."""

    status: BackfillStatus | None = None
    cursor: _Cursor | None = None
    limit: _Limit = 50


class BackfillView(View, frozen=True, kw_only=True):
    """A backfill and how far it is."""

    backfill_id: Id
    dag: str
    job: str
    generation: str
    dataset_uuid: str
    dataset_version: str
    selection: dict[str, Any]
    total: int
    queued: int
    made: int
    tasks: int
    max_in_flight: int
    status: BackfillStatus
    requested_by: str
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    progress: Progress | None = None
    """What became of its tasks; only where one backfill is asked for."""


class BackfillPage(View, frozen=True, kw_only=True):
    """Backfills, the newest first; `next_cursor` is null on the last page."""

    backfills: list[BackfillView]
    next_cursor: str | None


class BackfillAnswer(View, frozen=True, kw_only=True):
    """What was planned, and the backfill that does it; none of a dry run."""

    plan: PlanView
    backfill: BackfillView | None


class BackfillChange(Body, frozen=True, kw_only=True):
    """Why a backfill is changed."""

    reason: Text | None = None


class ReconcileRequest(Body, frozen=True, kw_only=True):
    """Which DAG to look at: all unless told."""

    dag: Name | None = None


class MissedView(View, frozen=True, kw_only=True):
    """What was missing in a DAG, as job and partition, and the run that makes up for it."""

    dag: str
    dag_version_id: str
    execution_id: Id | None
    partitions: list[tuple[str, str]]


class ReconciledView(View, frozen=True, kw_only=True):
    """What one look found."""

    dags: list[MissedView]
    closed: list[Id]
    undelivered: int


class JobStateView(View, frozen=True, kw_only=True):
    """What the operator of a job keeps between tasks."""

    dag: str
    job: str
    operator: str
    generation: str
    states: tuple[OperatorState, ...]


def invalidation_view(one: Invalidation) -> InvalidationView:
    """Return an invalidation as callers see it."""
    named = {generation: one.jobs.get(generation, generation) for generation in one.dependents}
    return InvalidationView(
        invalidation_id=str(one.invalidation_id),
        dataset_uuid=one.dataset_uuid,
        dataset_version=one.dataset_version,
        dataset=one.dataset,
        scope=one.scope,
        partition_key=one.partition_key,
        row_filter=one.row_filter,
        reason=one.reason,
        note=one.note,
        requested_by=one.requested_by,
        tasks={named[generation]: count for generation, count in one.dependents.items()},
        done={named.get(generation, generation): count for generation, count in one.processed_by.items()},
        status=one.status,
        closed_because=one.closed_because,
        created_at=one.created_at,
        closed_at=one.closed_at,
    )


def plan_view(plan: BackfillPlan) -> PlanView:
    """Return a plan as callers see it, without the partitions between the first and the last."""
    return PlanView(**{name: getattr(plan, name) for name in PlanView.__struct_fields__})


def backfill_view(one: Backfill, progress: Progress | None = None) -> BackfillView:
    """Return a backfill as callers see it."""
    fields = {name: getattr(one, name) for name in BackfillView.__struct_fields__ if name != "progress"}
    return BackfillView(**{**fields, "backfill_id": str(one.backfill_id)}, progress=progress)


def reconciled_view(found: Reconciled) -> ReconciledView:
    """Return what was missed as callers see it."""
    return ReconciledView(
        dags=[
            MissedView(
                dag=one.dag,
                dag_version_id=one.dag_version_id,
                execution_id=None if one.execution_id is None else str(one.execution_id),
                partitions=list(one.partitions),
            )
            for one in found.dags
        ],
        closed=[str(one) for one in found.closed],
        undelivered=found.undelivered,
    )
