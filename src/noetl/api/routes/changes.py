"""Changing data: rows that are wrong, ranges that are built again, partitions that were missed, what operators keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from noetl.api.endpoint import READERS, WRITERS, Answer, Call, Routes
from noetl.api.routes.change_views import (
    BackfillAnswer,
    BackfillChange,
    BackfillPage,
    BackfillRequest,
    BackfillsQuery,
    BackfillView,
    InvalidateRequest,
    InvalidationPage,
    InvalidationsQuery,
    InvalidationView,
    JobStateView,
    ReconciledView,
    ReconcileRequest,
    backfill_view,
    invalidation_view,
    plan_view,
    reconciled_view,
)
from noetl.api.routes.dags import pipelines_of
from noetl.dispatch.changes.backfill_rows import Backfill
from noetl.dispatch.changes.changes import Changes
from noetl.dispatch.changes.operator_states import job_state

routes = Routes("changes")


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
    return invalidation_view(one)


@routes.get("/api/invalidations", READERS)
async def list_invalidations(call: Call, query: InvalidationsQuery) -> InvalidationPage:
    """List what was said to be wrong, the newest first, and how far it is worked off."""
    before = None if query.cursor is None else int(query.cursor)
    found = await _changes(call).invalidations.listed(
        call.scope, status=query.status, before=before, limit=query.limit + 1
    )
    page = found[: query.limit]
    return InvalidationPage(
        invalidations=[invalidation_view(one) for one in page],
        next_cursor=str(page[-1].invalidation_id) if len(found) > len(page) else None,
    )


@routes.get("/api/invalidations/{invalidation_id}", READERS)
async def get_invalidation(call: Call, invalidation_id: int) -> InvalidationView:
    """Return one invalidation."""
    return invalidation_view(await _changes(call).invalidations.show(call.scope, invalidation_id))


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
        return Answer(BackfillAnswer(plan=plan_view(plan), backfill=None), 200)
    one = await changes.backfills.request(call.scope, found, plan, by=call.caller.name, key=call.key)
    return BackfillAnswer(plan=plan_view(plan), backfill=backfill_view(one))


@routes.get("/api/backfills", READERS)
async def list_backfills(call: Call, query: BackfillsQuery) -> BackfillPage:
    """List backfills, the newest first."""
    before = None if query.cursor is None else int(query.cursor)
    found = await _changes(call).backfills.listed(call.scope, status=query.status, before=before, limit=query.limit + 1)
    page = found[: query.limit]
    return BackfillPage(
        backfills=[backfill_view(one) for one in page],
        next_cursor=str(page[-1].backfill_id) if len(found) > len(page) else None,
    )


@routes.get("/api/backfills/{backfill_id}", READERS)
async def get_backfill(call: Call, backfill_id: int) -> BackfillView:
    """Return a backfill with what became of its tasks."""
    return backfill_view(*(await _changes(call).backfills.progress(call.scope, backfill_id)))


@routes.post("/api/backfills/{backfill_id}/pause", WRITERS, repeatable=True)
async def pause_backfill(call: Call, backfill_id: int, body: BackfillChange | None = None) -> BackfillView:
    """Give out no further partitions for a while; tasks under way go on."""
    own, reason = _changes(call).backfills, None if body is None else body.reason
    return await _changed(call, lambda: own.pause(call.scope, backfill_id, by=call.caller.name, reason=reason))


@routes.post("/api/backfills/{backfill_id}/resume", WRITERS, repeatable=True)
async def resume_backfill(call: Call, backfill_id: int) -> BackfillView:
    """Go on with a backfill that was paused."""
    own = _changes(call).backfills
    return await _changed(call, lambda: own.resume(call.scope, backfill_id, by=call.caller.name))


@routes.post("/api/backfills/{backfill_id}/cancel", WRITERS, repeatable=True)
async def cancel_backfill(call: Call, backfill_id: int, body: BackfillChange | None = None) -> BackfillView:
    """Give a backfill up: what waits is not built, what runs is stopped, what was built stays."""
    own, reason = _changes(call).backfills, None if body is None else body.reason
    return await _changed(call, lambda: own.cancel(call.scope, backfill_id, by=call.caller.name, reason=reason))


@routes.post("/api/reconcile", WRITERS, repeatable=True)
async def reconcile_datasets(call: Call, body: ReconcileRequest | None = None) -> ReconciledView:
    """Find partitions that were missed, of one DAG or of all, and have them built."""
    dag = None if body is None else body.dag
    return reconciled_view(await _changes(call).reconciling.reconcile(call.scope, dag, by=call.caller.name))


@routes.get("/api/dags/{dag}/jobs/{job}/state", READERS)
async def get_job_state(call: Call, dag: str, job: str) -> JobStateView:
    """Return what the operator of a job keeps between tasks, in the version that serves."""
    pipelines_of(call)
    found = await job_state(call.services.database, call.scope, f"{dag}.{job}")
    return JobStateView(**{name: getattr(found, name) for name in JobStateView.__struct_fields__})


async def _changed(call: Call, change: Callable[[], Awaitable[Backfill]]) -> BackfillView:
    one = await change()
    return backfill_view(*(await _changes(call).backfills.progress(call.scope, one.backfill_id)))


def _changes(call: Call) -> Changes:
    pipelines, services = pipelines_of(call), call.services
    return Changes(
        services.database,
        services.ledger,
        services.payloads,
        pipelines.datasets,
        pipelines.engine,
        services.mint,
        services.producer,
    )
