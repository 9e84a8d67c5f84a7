"""Everything that changes data in one process, connected on its engine of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from noetl.engine.dispatch.drafts import Drafting
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.changes.backfills.preview import BackfillPlan, BackfillPlans
from noetl.pipelines.changes.backfills.queue import BackfillDrain
from noetl.pipelines.changes.backfills.requests import Backfills
from noetl.pipelines.changes.context import Located, Means
from noetl.pipelines.changes.invalidations import Invalidations
from noetl.pipelines.changes.reconciliation import Reconciling
from noetl.pipelines.tasks.engine import TaskEngine


class Changes:
    """Invalidations, backfills and reconciliation of all organizations of one database."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        payloads: PayloadStore,
        datasets: Datasets,
        engine: TaskEngine,
        mint: Callable[[], int],
        producer: str,
        *,
        max_in_flight: int = 32,
    ) -> None:
        drafting = Drafting(lambda number: [mint() for _ in range(number)], producer)
        self._means = Means(database, ledger, payloads, datasets, engine, mint, drafting)
        self._plans = BackfillPlans(self._means)
        self.max_in_flight = max_in_flight
        self.invalidations = Invalidations(self._means)
        self.backfills = Backfills(self._means)
        self.reconciling = Reconciling(self._means, self.invalidations)

    async def plan_backfill(
        self,
        scope: Scope,
        name: str,
        *,
        start: str,
        end: str,
        step: str | None = None,
        fixed: Mapping[str, str] | None = None,
        max_in_flight: int | None = None,
    ) -> tuple[Located, BackfillPlan]:
        """Say what a backfill of a range of partitions would do."""
        most = self.max_in_flight if max_in_flight is None else max_in_flight
        return await self._plans.plan(scope, name, start=start, end=end, step=step, fixed=fixed, max_in_flight=most)

    def drain(
        self, *, organization_in_flight: int = 128, every_seconds: float = 1.0, patience_seconds: float = 5.0
    ) -> BackfillDrain:
        """Return what drives backfills; nothing runs before it is started."""
        return BackfillDrain(
            self._means,
            self.backfills,
            organization_in_flight=organization_in_flight,
            every_seconds=every_seconds,
            patience_seconds=patience_seconds,
        )
