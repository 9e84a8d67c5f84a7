"""The state of an execution or of a whole organization, as of any point: rows, checksums and how they were come by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.fields import Erasures, FieldsReader, nothing_erased
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.folds.checksum import Tally, state_checksum
from noetl.kernel.projections.folds.fold import Fold, FoldedRow
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.folds.wanted import Rows
from noetl.kernel.projections.stores.port import Projections
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_execution, resolve_organization
from noetl.kernel.replay.pages import EVICTED, EventPages, fold_pages
from noetl.kernel.replay.payloads import resolve_rows
from noetl.kernel.replay.snapshots import SnapshotKeeper, Snapshots
from noetl.model.broken_stream import BrokenStream
from noetl.model.mark import Mark
from noetl.model.stream import Scope

RowsWanted = Literal["all", "kept", "none"]
"""Which rows to return: all, all but those of frames that have ended (which snapshots leave out), or none."""


class ReplayedState(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found. Equal positions give equal rows and checksums, with snapshots or without."""

    scope: Scope
    execution_id: int | None
    projection: str
    position: int | None
    """The position in the execution's shard up to which was folded; 0 when it had not begun."""
    mark: Mark | None
    """For an organization, the position of every shard up to which was folded."""
    rows: dict[str, list[dict[str, Any]]]
    left_off: dict[str, int]
    """How many rows of each projection fell behind the limit."""
    checksums: dict[str, dict[str, int | str]]
    checksum: str
    fold_versions: dict[str, int]
    upcaster_digest: str
    events: int
    """How many events were read and folded, those in the snapshot not counted."""
    snapshot: int | None = None
    """The position of the snapshot the fold began with."""
    warnings: list[str] = []
    payloads: dict[str, dict[str, Any]] = {}
    """The payloads the rows refer to, by digest, when they were asked for."""
    broken: list[BrokenStream] = []
    """Streams with fields that cannot be read; their rows are as they were before."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values, ids as text."""
        own = {"scope", "mark", "broken"}
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in own}
        return {
            "tenant_id": self.scope.tenant_id,
            "organization_id": self.scope.organization_id,
            **fields,
            "execution_id": None if self.execution_id is None else str(self.execution_id),
            "mark": None if self.mark is None else self.mark.token(),
            "broken": [msgspec.to_builtins(one) | {"event_id": str(one.event_id)} for one in self.broken],
        }


class Replay:
    """Rebuilds state from the ledger; the live projections are not looked at."""

    def __init__(
        self,
        history: EventPages,
        payloads: PayloadStore,
        store: Projections,
        folds: FoldRegistry,
        upcasters: Upcasters,
        snapshot_interval: int = 10_000,
        *,
        database: Database | None = None,
        erasures: Erasures = nothing_erased,
    ) -> None:
        """Take the parts. With a database, points in time are found by its indexes, else by reading the events."""
        self._history = history
        self._database = database
        self._payloads = payloads
        self._folds = folds
        self._upcasters = upcasters
        self._erasures = erasures
        self.snapshots = Snapshots(history, payloads, store, folds, upcasters, erasures)
        self.keeper = SnapshotKeeper(self.snapshots, store, snapshot_interval)

    async def state(
        self,
        scope: Scope,
        execution_id: int | None = None,
        *,
        as_of: AsOf = HEAD,
        projection: str = "execution",
        rows: RowsWanted = "all",
        limit: int | None = None,
        use_snapshots: bool = True,
        resolve_payloads: bool = False,
    ) -> ReplayedState:
        """Return the state of an execution, or of the organization when none is named, as of a point.

        `projection` is one projection, `business_object` for all of those, or `all`. The limit is on the rows returned
        of each projection; checksums always cover all of them.
        """
        folds = self._folds.select(projection)
        names = [fold.projection for fold in folds]
        wanted = Rows([] if rows == "none" else names, limit)
        if execution_id is None:
            mark = await resolve_organization(self._history, self._database, scope, as_of)
            found = await self._organization(scope, mark, folds, wanted)
            positions: Mapping[str, Any] = {"position": None, "mark": mark}
        else:
            cut = await resolve_execution(self._history, self._database, scope, execution_id, as_of)
            snapshots = use_snapshots and not (rows == "all" and EVICTED.intersection(names))
            ended = wanted.add if rows == "all" else None
            found = await self._execution(scope, execution_id, cut, folds, wanted, ended, snapshots=snapshots)
            positions = {"position": cut, "mark": None}
        tallies = {name: tally for name, tally in found.state.tallies().items() if name in names}
        shown = wanted.by_projection()
        payloads = {}
        if resolve_payloads:
            payloads = await resolve_rows(self._history, self._payloads, scope, execution_id, found.upto, shown)
        return ReplayedState(
            scope=scope,
            execution_id=execution_id,
            projection=projection,
            rows=shown,
            left_off={name: count for name, count in wanted.left_off.items() if count},
            checksums=plain_tallies(tallies),
            checksum=state_checksum(tallies),
            fold_versions={fold.projection: fold.version for fold in folds},
            upcaster_digest=self._upcasters.digest(),
            events=found.events,
            snapshot=found.snapshot,
            warnings=found.warnings,
            payloads=payloads,
            broken=found.broken,
            **positions,
        )

    async def _execution(
        self,
        scope: Scope,
        execution_id: int,
        cut: int,
        folds: tuple[Fold, ...],
        wanted: Rows,
        ended: Callable[[FoldedRow], None] | None,
        *,
        snapshots: bool,
    ) -> _Folded:
        resumed, warnings = await self.snapshots.newest(scope, execution_id, cut) if snapshots else (None, [])
        if resumed is not None:
            state, start = resumed.state, resumed.snapshot.version + 1
        else:
            state = FoldState(folds, upcasters=self._upcasters, evict=EVICTED, on_ended=ended)
            start = 1
        events, fields = 0, self._fields()
        if start <= cut:
            pages = self._history.execution_pages(scope, execution_id, start, to_position=cut)
            events = await fold_pages(state, pages, fields)
        _gather(state, folds, wanted)
        version = None if resumed is None else resumed.snapshot.version
        return _Folded(state, events, {None: cut}, version, [*warnings, *_warnings(fields)], fields.broken)

    async def _organization(self, scope: Scope, mark: Mark, folds: tuple[Fold, ...], wanted: Rows) -> _Folded:
        state = FoldState(folds, upcasters=self._upcasters, on_ended=wanted.add)
        events, fields = 0, self._fields()
        for shard, last in enumerate(mark.positions):
            if last:
                pages = self._history.shard_pages(shard, scope=scope, to_position=last)
                events += await fold_pages(state, pages, fields)
        _gather(state, folds, wanted)
        return _Folded(state, events, dict(enumerate(mark.positions)), None, _warnings(fields), fields.broken)

    def _fields(self) -> FieldsReader:
        return FieldsReader(self._payloads, self._erasures)


class _Folded(msgspec.Struct, frozen=True):
    state: FoldState
    events: int
    upto: dict[Any, int]
    """The cut of each shard, or of the execution under None."""
    snapshot: int | None
    warnings: list[str]
    broken: list[BrokenStream]


def _warnings(fields: FieldsReader) -> list[str]:
    return [one.sentence() for one in fields.broken]


def _gather(state: FoldState, folds: tuple[Fold, ...], wanted: Rows) -> None:
    for fold in folds:
        for folded in state.rows(fold.projection):
            wanted.add(folded)


def plain_tallies(tallies: Mapping[str, Tally]) -> dict[str, dict[str, int | str]]:
    """Write tallies as plain JSON values."""
    return {name: {"rows": tally.rows, "checksum": tally.hex()} for name, tally in tallies.items()}
