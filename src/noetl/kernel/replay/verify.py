"""Proves that what is stored equals what the events say; if it does not, names the first rows and fields that differ.

Only reads. The ledger is folded anew, without snapshots, up to the checkpoints of the projections; checksums of stored
rows are computed from their state, and the stored ones compared with that too. What folds are given of fields in the payload
store is held against the store itself, since rows that lack the same on both sides are equal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from noetl.errors import HistoryNotKept, NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.fields import Erasures, FieldsReader, nothing_erased
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.field_witness import Witness
from noetl.kernel.projections.folds.checksum import Sums
from noetl.kernel.projections.folds.fold import Fold, FoldedRow
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.stores.by_type import StoreLine, of_store
from noetl.kernel.projections.stores.port import Projections, ProjectionView, StoredRow
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.compare import Suspects, broken_differences, compared, lost_differences, stored_sums, unequal
from noetl.kernel.replay.ledger_rows import inline_differences, shard_differences
from noetl.kernel.replay.open_work import open_work_differences
from noetl.kernel.replay.organization_rows import pipeline_differences
from noetl.kernel.replay.pages import EventPages, fold_pages
from noetl.kernel.replay.payloads import PayloadProofs
from noetl.kernel.replay.report import Difference, StoreCompared, VerifyReport
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Event
from noetl.model.mark import Mark
from noetl.model.stream import Scope, execution_stream

Progress = Callable[[int], None]

_SCOPES = """
SELECT tenant_id, organization_id FROM noetl.stream UNION SELECT tenant_id, organization_id FROM noetl.projection
UNION SELECT tenant_id, organization_id FROM noetl.execution_head UNION SELECT tenant_id, organization_id FROM noetl.command
UNION SELECT tenant_id, organization_id FROM noetl.stage UNION SELECT tenant_id, organization_id FROM noetl.frame
UNION SELECT tenant_id, organization_id FROM noetl.event_archive
ORDER BY 1, 2
"""


class Verifier:
    """Compares projections and inline rows with the ledger."""

    def __init__(
        self,
        history: EventPages,
        payloads: PayloadStore,
        store: Projections,
        folds: FoldRegistry,
        upcasters: Upcasters,
        *,
        database: Database | None = None,
        others: Sequence[StoreLine] = (),
        erasures: Erasures = nothing_erased,
    ) -> None:
        """Take the parts, the stores of other types among them; without a database there are no inline rows to compare."""
        self._history = history
        self._payloads = payloads
        self._store = store
        self._folds = folds
        self._upcasters = upcasters
        self._database = database
        self._others = others
        self._erasures = erasures

    async def verify(
        self,
        scope: Scope,
        execution_id: int | None = None,
        *,
        check_payloads: bool = False,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Verify an organization, or one execution of it; `progress` is told how many events were folded.

        Where history was removed for good nothing can be folded; all else is compared, and the report says so.
        """
        try:
            found = await self.compared(scope, execution_id, check_payloads=check_payloads, progress=progress)
        except HistoryNotKept as problem:
            if execution_id is not None or self._database is None:
                raise
            return await self._unfolded(scope, self._database, problem)
        differences, projections, stores = found.differences, compared(found.expected, found.found), []
        for line in self._others:
            with of_store(line.name):
                other = await self.beside(line).compared(scope, execution_id, check_payloads=False, progress=progress)
            differences = differences + other.differences
            projections += compared(other.expected, other.found, line.name)
            stores.append(StoreCompared(store=line.name, mark=other.mark, events=other.events, lag=other.lag))
        if self._database is not None:
            differences = differences + await inline_differences(self._database, scope, execution_id)
            differences += await open_work_differences(self._database, scope, execution_id, self._upcasters)
            if execution_id is None:
                differences += await pipeline_differences(self._database, scope, self._history, self._upcasters)
        return VerifyReport(
            scope=scope,
            execution_id=execution_id,
            mark=found.mark,
            events=found.events,
            lag=max(found.lag, *(one.lag for one in stores)) if stores else found.lag,
            projections=projections,
            differences=differences + ([] if found.payloads is None else found.payloads.differences),
            payloads=None if found.payloads is None else found.payloads.checked,
            stores=stores,
        )

    async def _unfolded(self, scope: Scope, database: Database, problem: HistoryNotKept) -> VerifyReport:
        """Compare what needs no fold; that history was removed is among it, and must be what the events say."""
        async with self._store.snapshot_view(scope) as view:
            mark = await view.checkpoints()
        differences = await inline_differences(database, scope, None)
        differences += await open_work_differences(database, scope, None, self._upcasters)
        return VerifyReport(
            scope=scope,
            execution_id=None,
            mark=mark,
            events=0,
            lag=0,
            projections=[],
            differences=differences,
            not_folded=problem.message,
        )

    def beside(self, line: StoreLine) -> Verifier:
        """Return what compares another store by itself."""
        return Verifier(self._history, self._payloads, line.store, line.folds, self._upcasters, erasures=self._erasures)

    async def compared(
        self, scope: Scope, execution_id: int | None, *, check_payloads: bool, progress: Progress | None
    ) -> Comparison:
        """Fold the events up to the checkpoints of the projections and hold the stored rows against that."""
        async with self._store.snapshot_view(scope) as view:
            mark = await view.checkpoints()
            lag = sum((await self._history.head()).positions) - sum(mark.positions)
            if execution_id is not None:
                await self._must_exist(scope, execution_id)
            broken = _of_execution(await view.broken_streams(), execution_id)
            pass_ = _Pass(self, scope, execution_id, mark, broken)
            found, differences = await stored_sums(pass_.stored(view))
            expected = Sums()
            payloads = PayloadProofs(self._payloads, scope) if check_payloads else None
            witness = Witness(self._payloads)
            events = await pass_.fold(expected.add, progress, payloads, witness)
            differences += lost_differences(witness.lost) + broken_differences([*broken, *pass_.unreadable])
            places = unequal(expected, found)
            if places:
                suspects = Suspects(places)
                async for stored in pass_.stored(view):
                    suspects.find(stored.folded)
                await pass_.fold(suspects.expect)
                differences += suspects.differences()
        return Comparison(
            mark=mark,
            lag=lag,
            events=events,
            expected=expected,
            found=found,
            differences=differences,
            payloads=payloads,
        )

    async def scopes(self) -> list[Scope]:
        """Return every organization that has events, projected rows or open work."""
        assert self._database is not None
        async with self._database.transaction(None, "projector") as connection:
            found = {Scope(*row) for row in await connection.fetch(_SCOPES)}
        for line in self._others:
            with of_store(line.name):
                found.update(await line.store.scopes())
        return sorted(found, key=lambda scope: (scope.tenant_id, scope.organization_id))

    async def shards(self) -> list[Difference]:
        """Compare the shard heads with the events of all tenants."""
        assert self._database is not None
        return await shard_differences(self._database)

    async def _must_exist(self, scope: Scope, execution_id: int) -> None:
        async for _ in self._history.execution_pages(scope, execution_id):
            return
        raise NotFound(f"there is no execution {execution_id} in {scope.tenant_id}/{scope.organization_id}")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Both sides of the projections, and what differs."""

    mark: Mark
    lag: int
    events: int
    expected: Sums
    found: Sums
    differences: list[Difference]
    payloads: PayloadProofs | None = None


class _Pass:
    """Both sides of one comparison, each readable more than once."""

    def __init__(
        self,
        verifier: Verifier,
        scope: Scope,
        execution_id: int | None,
        mark: Mark,
        broken: Sequence[BrokenStream],
    ) -> None:
        self._history = verifier._history
        self._payloads, self._erasures = verifier._payloads, verifier._erasures
        self._broken = broken
        self.unreadable: list[BrokenStream] = []
        """Streams with fields that cannot be read, besides those that are known to stand still."""
        self._upcasters = verifier._upcasters
        self._scope = scope
        self._execution_id = execution_id
        self._mark = mark
        # An object of the user's own may be fed by several executions; only the organization's fold has all of it.
        folds = verifier._folds.folds()
        self._folds: tuple[Fold, ...] = tuple(fold for fold in folds if execution_id is None or fold.per_execution)

    async def stored(self, view: ProjectionView) -> AsyncIterator[StoredRow]:
        """Give the stored rows."""
        if self._execution_id is None:
            async for stored in view.query():
                yield stored
            return
        for fold in self._folds:
            async for stored in view.query(fold.projection, {"execution_id": self._execution_id}):
                yield stored

    async def fold(
        self,
        take: Callable[[FoldedRow], Any],
        progress: Progress | None = None,
        payloads: PayloadProofs | None = None,
        witness: Witness | None = None,
    ) -> int:
        """Fold the ledger up to the checkpoints, hand every row over, and return how many events there were.

        Streams that stand still are folded up to there, as their rows are.
        """
        folds = self._folds if witness is None else witness.folds(self._folds)
        state = FoldState(folds, upcasters=self._upcasters, on_ended=take)
        fields = FieldsReader(self._payloads, self._erasures, stopped=self._broken)
        events = 0
        for pages in self._pages():
            events += await fold_pages(state, _watched(pages, progress, payloads), fields, witness=witness)
        self.unreadable = fields.broken
        for fold in self._folds:
            for folded in state.rows(fold.projection):
                take(folded)
        return events

    def _pages(self) -> list[AsyncIterator[list[Event]]]:
        scope, positions = self._scope, self._mark.positions
        if self._execution_id is None:
            return [
                self._history.shard_pages(shard, scope=scope, to_position=last)
                for shard, last in enumerate(positions)
                if last
            ]
        last = positions[execution_stream(scope, self._execution_id).shard]
        return [self._history.execution_pages(scope, self._execution_id, to_position=last)]


def _of_execution(broken: Sequence[BrokenStream], execution_id: int | None) -> list[BrokenStream]:
    return [one for one in broken if execution_id in (None, one.stream.execution_id)]


async def _watched(
    pages: AsyncIterator[list[Event]], progress: Progress | None, payloads: PayloadProofs | None
) -> AsyncIterator[list[Event]]:
    async for page in pages:
        if payloads is not None:
            for event in page:
                if event.payload_ref is not None or event.fields_ref is not None:
                    await payloads.check(event)
        yield page
        if progress is not None:
            progress(len(page))
