"""Changing data in one process: invalidations and backfills connected to its runtime, and what drives them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from noetl.pipelines.changes.engine import Changes
from noetl.pipelines.pipelines import Pipelines
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.wiring import Runtime
from noetl.services.schedule.handlers.port import Outcome, SlotRun
from noetl.services.schedule.spec import Spec


def changes_of(runtime: Runtime, pipelines: Pipelines, role: str = "server") -> Changes:
    """Return what changes the data of all organizations of this process's database."""
    return Changes(
        runtime.database,
        runtime.ledger,
        runtime.payloads,
        pipelines.datasets,
        pipelines.engine,
        runtime.ids.mint,
        producer_of(runtime, role),
        max_in_flight=runtime.settings.backfill.max_in_flight,
    )


@asynccontextmanager
async def open_backfills(runtime: Runtime, pipelines: Pipelines, role: str = "server") -> AsyncIterator[None]:
    """Drive the backfills of all organizations for the time of the block."""
    drain = changes_of(runtime, pipelines, role).drain(
        organization_in_flight=runtime.settings.backfill.organization_in_flight
    )
    drain.start()
    try:
        yield
    finally:
        await drain.stop()


class ReconcileJob:
    """The job `reconcile` of the platform: finds what was missed in every organization. Run twice, it finds nothing."""

    name: Final = "reconcile"
    spec: Final = Spec(expression="rate(15 minutes)", run_timeout_seconds=600.0, stale_timeout_seconds=900.0)

    def __init__(self, runtime: Runtime, pipelines: Pipelines) -> None:
        self._changes = changes_of(runtime, pipelines, "scheduler")

    async def __call__(self, slot: SlotRun) -> Outcome:
        """Look once."""
        found = (await self._changes.reconciling.reconcile_all(by=f"{slot.name} {slot.key}")).values()
        missed, closed = sum(one.missed for one in found), sum(len(one.closed) for one in found)
        return Outcome(
            rows_affected=missed,
            result={
                "organizations": len(found),
                "missed": missed,
                "closed": closed,
                "undelivered": sum(one.undelivered for one in found),
            },
        )
