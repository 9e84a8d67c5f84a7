"""What the platform itself does from time to time, in all organizations, as jobs that schedulers run."""

from __future__ import annotations

from typing import Any, Final

from noetl.errors import NoetlError, Unavailable
from noetl.model.stream import Scope
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.alerts import EVALUATE, evaluate_alerts_job
from noetl.runtime.assembly.changes import ReconcileJob
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.retention import run_retention
from noetl.runtime.wiring import Runtime
from noetl.services.schedule.handlers.port import Outcome, PlatformJobs, SlotRun
from noetl.services.schedule.handlers.pruning import PRUNE_SLOTS, PRUNE_SPEC, PruneSlots
from noetl.services.schedule.spec import Spec

RETENTION: Final = Spec(expression="41 3 * * *", run_timeout_seconds=10_800.0, stale_timeout_seconds=14_400.0)

_ORGANIZATIONS: Final = """
SELECT tenant_id, organization_id FROM noetl.dag_version UNION
SELECT tenant_id, organization_id FROM noetl.schedule ORDER BY 1, 2
"""


def platform_jobs(runtime: Runtime, pipelines: Pipelines) -> PlatformJobs:
    """Return the jobs of the platform, each with its schedule."""
    own = runtime.settings.schedules
    jobs = PlatformJobs()
    prune = PruneSlots(
        runtime.database,
        runtime.ledger,
        runtime.ids.mint_many,
        producer_of(runtime, "scheduler"),
        succeeded_days=own.keep_succeeded_days,
        failed_days=own.keep_failed_days,
    )
    reconcile = ReconcileJob(runtime, pipelines)
    jobs.register(PRUNE_SLOTS, prune, PRUNE_SPEC)
    jobs.register(reconcile.name, reconcile, reconcile.spec)
    jobs.register("evaluate_alerts", evaluate_alerts_job(runtime), EVALUATE)
    jobs.register("retention", _Retention(runtime), RETENTION)
    return jobs


class _Retention:
    """The job `retention`: in every organization whose policy says that it is done by itself."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Let go of what is old enough, organization by organization."""
        async with self._runtime.database.transaction(None, "reaper") as connection:
            rows = await connection.fetch(_ORGANIZATIONS)
        scopes = {self._runtime.scope, *(Scope(row["tenant_id"], row["organization_id"]) for row in rows)}
        done: list[dict[str, Any]] = []
        failed: list[str] = []
        for scope in sorted(scopes, key=lambda one: (one.tenant_id, one.organization_id)):
            try:
                done.append(await run_retention(self._runtime, scope))
            except NoetlError as problem:
                # One organization must not keep the others' old data; the slot fails in the end and is tried again.
                failed.append(f"{scope.tenant_id}/{scope.organization_id}: {problem.message}")
        if failed:
            raise Unavailable(f"retention failed in {len(failed)} of {len(scopes)} organizations: {'; '.join(failed)}")
        return Outcome(result={"organizations": len(done), "ran": sum(bool(one["ran"]) for one in done)})
