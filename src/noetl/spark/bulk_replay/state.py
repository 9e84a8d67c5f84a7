"""The state of an organization as of any point, folded on Spark: the same rows and checksums as a single process gives."""

from __future__ import annotations

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.checksum import state_checksum
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.wanted import Rows
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_organization
from noetl.kernel.replay.pages import EventPages
from noetl.kernel.replay.payloads import resolve_rows
from noetl.kernel.replay.replay import ReplayedState, RowsWanted, plain_tallies
from noetl.model.stream import Scope
from noetl.spark.bulk_replay.organization import BulkFolds, Reached

LIMIT = 1_000
"""Rows of each projection that are returned unless more are asked for: there may be millions."""


class BulkReplay:
    """Rebuilds the state of organizations from the ledger or the event lake, on Spark."""

    def __init__(
        self,
        bulk: BulkFolds,
        history: EventPages,
        database: Database,
        payloads: PayloadStore,
        folds: FoldRegistry,
        upcasters: Upcasters,
    ) -> None:
        self._bulk = bulk
        self._history = history
        self._database = database
        self._payloads = payloads
        self._folds = folds
        self._upcasters = upcasters

    async def state(
        self,
        scope: Scope,
        *,
        as_of: AsOf = HEAD,
        projection: str = "execution",
        rows: RowsWanted = "all",
        limit: int | None = LIMIT,
        resolve_payloads: bool = False,
        reached: Reached | None = None,
    ) -> ReplayedState:
        """Return the state of an organization as of a point; see `Replay.state`."""
        folds = self._folds.select(projection)
        names = [fold.projection for fold in folds]
        wanted = Rows([] if rows == "none" else names, limit)
        mark = await resolve_organization(self._history, self._database, scope, as_of)
        projections = () if rows == "none" else names
        found = await self._bulk.fold(scope, folds, mark, reached, projections=projections, limit=limit)
        for folded in found.rows:
            wanted.add(folded)
        shown = wanted.by_projection()
        left_off = {name: count + found.left_off.get(name, 0) for name, count in wanted.left_off.items()}
        payloads = {}
        if resolve_payloads:
            upto = dict(enumerate(mark.positions))
            payloads = await resolve_rows(self._history, self._payloads, scope, None, upto, shown)
        return ReplayedState(
            scope=scope,
            execution_id=None,
            projection=projection,
            position=None,
            mark=mark,
            rows=shown,
            left_off={name: count for name, count in left_off.items() if count},
            checksums=plain_tallies(found.tallies),
            checksum=state_checksum(found.tallies),
            fold_versions={fold.projection: fold.version for fold in folds},
            upcaster_digest=self._upcasters.digest(),
            events=found.events,
            payloads=payloads,
            warnings=[one.sentence() for one in found.broken],
            broken=found.broken,
        )
