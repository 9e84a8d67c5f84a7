"""Changing data: rows that are wrong, ranges that are built again, partitions that were missed, what operators keep."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from noetl.api.endpoint import READERS, WRITERS, Answer, Call, Routes
from noetl.api.wire import NO_NUL, Body, Name, Text, View, combined
from noetl.model.catalogue.changes import InvalidationReason
from noetl.model.ids import ID_PATTERN
from noetl.pipelines.changes.backfills.preview import PlanView
from noetl.pipelines.changes.backfills.rows import BackfillStatus, Progress, PublicBackfill
from noetl.pipelines.changes.engine import Changes
from noetl.pipelines.changes.invalidations import PublicInvalidation
from noetl.pipelines.changes.reconciliation import Reconciled
from noetl.pipelines.tasks.rows import JobState, job_state

routes = Routes("changes")


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


class InvalidationView(PublicInvalidation, frozen=True, kw_only=True):
    """Rows that were said to be wrong; `tasks` counts what follows by DAG.JOB, `done` what of it is worked off."""

    tasks: dict[str, int]
    done: dict[str, int]


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


class BackfillsQuery(Body, frozen=True, kw_only=True):
    """Which backfills to list."""

    status: BackfillStatus | None = None
    cursor: _Cursor | None = None
    limit: _Limit = 50


class BackfillView(PublicBackfill, frozen=True, kw_only=True):
    """A backfill and how far it is."""

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


@routes.post("/api/datasets/{name}/invalidate", WRITERS, status=201, keyed=True)
async def invalidate_dataset(call: Call, name: str, body: InvalidateRequest) -> InvalidationView:
    """Say that a partition or a range of rows is wrong: it is built again, and whatever was made of it follows.

    The id of the answer is also that of the run, which `/api/dags/{dag}/runs/{execution_id}` waits for. With an
    Idempotency-Key, a second request under the same key gives the invalidation of the first one.
    """
    one = await _changes(call).invalidations.invalidate(
        call.scope,
        name,
        partition_key=body.partition_key,
        where=body.where,
        reason=body.reason,
        note=body.note,
        by=call.caller.name,
        key=call.key,
    )
    return combined(InvalidationView, one)


@routes.get("/api/invalidations", READERS)
async def list_invalidations(call: Call, query: InvalidationsQuery) -> InvalidationPage:
    """List what was said to be wrong, the newest first, and how far it is worked off."""
    before = None if query.cursor is None else int(query.cursor)
    found = await _changes(call).invalidations.listed(
        call.scope, status=query.status, before=before, limit=query.limit + 1
    )
    page = found[: query.limit]
    return InvalidationPage(
        invalidations=[combined(InvalidationView, one) for one in page],
        next_cursor=str(page[-1].invalidation_id) if len(found) > len(page) else None,
    )


@routes.get("/api/invalidations/{invalidation_id}", READERS)
async def get_invalidation(call: Call, invalidation_id: int) -> InvalidationView:
    """Return one invalidation."""
    return combined(InvalidationView, await _changes(call).invalidations.show(call.scope, invalidation_id))


@routes.post("/api/datasets/{name}/backfill", WRITERS, status=201, keyed=True)
async def backfill_dataset(call: Call, name: str, body: BackfillRequest) -> Answer | BackfillAnswer:
    """Build the partitions of a range again, a few at a time; a dry run only says what would be done.

    With an Idempotency-Key, a second request under the same key gives the backfill of the first one.
    """
    changes = _changes(call)
    found, plan = await changes.plan_backfill(
        call.scope,
        name,
        start=body.start,
        end=body.end,
        step=body.step,
        fixed=body.partition,
        max_in_flight=body.max_in_flight,
    )
    if body.dry_run:
        return Answer(BackfillAnswer(plan=plan, backfill=None), 200)
    one = await changes.backfills.request(call.scope, found, plan, by=call.caller.name, key=call.key)
    return BackfillAnswer(plan=plan, backfill=combined(BackfillView, one))


@routes.get("/api/backfills", READERS)
async def list_backfills(call: Call, query: BackfillsQuery) -> BackfillPage:
    """List backfills, the newest first."""
    before = None if query.cursor is None else int(query.cursor)
    found = await _changes(call).backfills.listed(call.scope, status=query.status, before=before, limit=query.limit + 1)
    page = found[: query.limit]
    return BackfillPage(
        backfills=[combined(BackfillView, one) for one in page],
        next_cursor=str(page[-1].backfill_id) if len(found) > len(page) else None,
    )


@routes.get("/api/backfills/{backfill_id}", READERS)
async def get_backfill(call: Call, backfill_id: int) -> BackfillView:
    """Return a backfill with what became of its tasks."""
    one, progress = await _changes(call).backfills.progress(call.scope, backfill_id)
    return combined(BackfillView, one, progress=progress)


@routes.post("/api/backfills/{backfill_id}/pause", WRITERS, repeatable=True)
async def pause_backfill(call: Call, backfill_id: int, body: BackfillChange | None = None) -> BackfillView:
    """Give out no further partitions for a while; tasks under way go on."""
    reason = None if body is None else body.reason
    await _changes(call).backfills.pause(call.scope, backfill_id, by=call.caller.name, reason=reason)
    return await get_backfill(call, backfill_id)


@routes.post("/api/backfills/{backfill_id}/resume", WRITERS, repeatable=True)
async def resume_backfill(call: Call, backfill_id: int) -> BackfillView:
    """Go on with a backfill that was paused."""
    await _changes(call).backfills.resume(call.scope, backfill_id, by=call.caller.name)
    return await get_backfill(call, backfill_id)


@routes.post("/api/backfills/{backfill_id}/cancel", WRITERS, repeatable=True)
async def cancel_backfill(call: Call, backfill_id: int, body: BackfillChange | None = None) -> BackfillView:
    """Give a backfill up: what waits is not built, what runs is stopped, what was built stays."""
    reason = None if body is None else body.reason
    await _changes(call).backfills.cancel(call.scope, backfill_id, by=call.caller.name, reason=reason)
    return await get_backfill(call, backfill_id)


@routes.post("/api/reconcile", WRITERS, repeatable=True)
async def reconcile_datasets(call: Call, body: ReconcileRequest | None = None) -> Reconciled:
    """Find partitions that were missed, of one DAG or of all, and have them built."""
    dag = None if body is None else body.dag
    return await _changes(call).reconciling.reconcile(call.scope, dag, by=call.caller.name)


@routes.get("/api/dags/{dag}/jobs/{job}/state", READERS)
async def get_job_state(call: Call, dag: str, job: str) -> JobState:
    """Return what the operator of a job keeps between tasks, in the version that serves."""
    call.pipelines()
    return await job_state(call.services.database, call.scope, f"{dag}.{job}")


def _changes(call: Call) -> Changes:
    pipelines, services = call.pipelines(), call.services
    return Changes(
        services.database,
        services.ledger,
        services.payloads,
        pipelines.datasets,
        pipelines.engine,
        services.mint,
        services.producer,
    )
