"""Verifies organizations on Spark: both sides are summed shard by shard, and only where sums differ are rows looked at.

What differs is then named from the rows themselves, by the code and in the words of a single process.
"""

from __future__ import annotations

from collections.abc import Sequence

from noetl.errors import InputError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.by_type import StoreLine
from noetl.kernel.projections.stores.port import Projections
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.compare import (
    LOOKED_INTO,
    Suspects,
    broken_differences,
    lost_differences,
    stored_sums,
    unequal,
)
from noetl.kernel.replay.pages import EventPages
from noetl.kernel.replay.verify import Comparison, Progress, Verifier
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.bulk_replay.organization import BulkFolds, Reached


class BulkVerifier(Verifier):
    """Compares the projections of whole organizations with the ledger on Spark, and inline rows as `Verifier` does."""

    def __init__(
        self,
        bulk: BulkFolds,
        history: EventPages,
        payloads: PayloadStore,
        store: Projections,
        folds: FoldRegistry,
        upcasters: Upcasters,
        *,
        database: Database | None,
        reached: Reached | None = None,
        others: Sequence[StoreLine] = (),
    ) -> None:
        """Take the parts of a verifier, what folds on Spark, and who is told how far that is.

        Without a database the stored rows are not the ledger's, and Spark does not read them.
        """
        super().__init__(history, payloads, store, folds, upcasters, database=database, others=others)
        self._bulk = bulk
        self._reached = reached

    def beside(self, line: StoreLine) -> Verifier:
        """Return what compares another store by itself: folded on Spark, its rows summed here."""
        return BulkVerifier(
            self._bulk,
            self._history,
            self._payloads,
            line.store,
            line.folds,
            self._upcasters,
            database=None,
            reached=self._reached,
        )

    async def compared(
        self, scope: Scope, execution_id: int | None, *, check_payloads: bool, progress: Progress | None
    ) -> Comparison:
        """Compare an organization by sums; one execution, or the bytes of payloads, is no work for Spark."""
        if execution_id is not None or check_payloads:
            raise InputError(
                "one execution, or payloads, are verified by a single process", hint="leave out --engine spark"
            )
        if self._database is None:
            return await self._looked_into(scope)
        found = await self._bulk.fold(scope, self._folds.folds(), None, self._reached, sums=True)
        if (
            found.unsound
            or found.lost
            or found.broken
            or unequal(found.expected, found.found)
            or await self._broken(scope)
        ):
            return await self._looked_into(scope)
        return Comparison(
            mark=found.mark,
            lag=await self._lag(found.mark),
            events=found.events,
            expected=found.expected,
            found=found.found,
            differences=[],
        )

    async def _looked_into(self, scope: Scope) -> Comparison:
        """Compare once more, at one moment and by the stored rows themselves, and name what differs."""
        folds = self._folds.folds()
        async with self._store.snapshot_view(scope) as view:
            mark, broken = await view.checkpoints(), await view.broken_streams()
            stored, differences = await stored_sums(view.query())
            found = await self._bulk.fold(scope, folds, mark, self._reached, sums=True, stopped=broken)
            differences += lost_differences(found.lost) + broken_differences([*broken, *found.broken])
            places = unequal(found.expected, stored)
            if places:
                suspects = Suspects(places)
                async for row in view.query():
                    suspects.find(row.folded)
                names = [fold.projection for fold in folds]
                rows = await self._bulk.fold(
                    scope, folds, mark, self._reached, projections=names, places=places[:LOOKED_INTO], stopped=broken
                )
                for folded in rows.rows:
                    suspects.expect(folded)
                differences += suspects.differences()
        return Comparison(
            mark=mark,
            lag=await self._lag(mark),
            events=found.events,
            expected=found.expected,
            found=stored,
            differences=differences,
        )

    async def _broken(self, scope: Scope) -> bool:
        async with self._store.snapshot_view(scope) as view:
            return bool(await view.broken_streams())

    async def _lag(self, mark: Mark) -> int:
        return sum((await self._history.head()).positions) - sum(mark.positions)
