"""The state of a set of folds: events go in, in position order per shard; rows, checksums and snapshots come out.

The same state serves replay, which forgets ended rows, and live projectors, which load the rows a batch touches, fold
the batch and store what changed. Why both agree is told in `noetl.project`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from noetl.errors import FoldFailed, InputError, Unsupported
from noetl.kernel.projections.folds.business_object import fold_failed
from noetl.kernel.projections.folds.checksum import Tally, row_number, state_checksum
from noetl.kernel.projections.folds.fold import Fold, FoldedRow, RowKey, in_own_execution, is_erased, streams_of
from noetl.kernel.projections.folds.routes import Held, Key, Lane, Routes, Runs, Step
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event

EXPORT_FORMAT: Final = 1


class FoldState:
    """Rows folded so far, and the tally of the rows that have left memory.

    An event is applied whole or, when a user's fold refuses it with `FoldFailed`, not at all.
    """

    def __init__(
        self,
        folds: Iterable[Fold],
        *,
        upcasters: Upcasters | None = None,
        keep_ended: bool = False,
        evict: Collection[str] | None = None,
        on_ended: Callable[[FoldedRow], None] | None = None,
    ) -> None:
        """Take the folds to run. With `keep_ended` no row leaves memory; else `on_ended` gets each row as it leaves.

        `evict` names the projections whose ended rows leave; all of them do unless it is given.
        """
        self._lanes = {
            fold.projection: Lane(fold, leave=not keep_ended and (evict is None or fold.projection in evict))
            for fold in folds
        }
        self._routes: dict[tuple[str, str], Routes] = {}
        self._upcasters = upcasters or Upcasters()
        self._keep_ended = keep_ended
        self._on_ended = on_ended
        self._positions: dict[int, int] = {}
        self._touched: dict[Key, Held] = {}

    @property
    def positions(self) -> dict[int, int]:
        """The last position folded in each shard."""
        return dict(self._positions)

    @property
    def versions(self) -> dict[str, int]:
        """The version of each fold, by projection."""
        return {projection: lane.version for projection, lane in self._lanes.items()}

    def apply_many(self, events: Iterable[Event]) -> int:
        """Fold events in their order, with their fields read; return how many were new."""
        positions, upcast = self._positions, self._upcasters.upcast
        tenant_id = organization_id = execution_id = None
        runs = Runs(self._touched.__setitem__ if self._keep_ended else None)
        folded = 0
        try:
            for event in events:
                shard, position = event.shard, event.position
                if position <= positions.get(shard, 0):
                    continue
                event = upcast(event) if event.fields_ref is None else self._upcast_erased(event)
                if event.tenant_id != tenant_id or event.organization_id != organization_id:
                    runs.flush()
                    tenant_id, organization_id = event.tenant_id, event.organization_id
                    routes = self._routes_of(tenant_id, organization_id)
                free, own, in_runs = routes[event.event_type]
                if free:
                    self._apply_free(free, event)
                if event.execution_id != execution_id:
                    execution_id = event.execution_id
                    streams = streams_of(execution_id)
                if (own or in_runs) and (event.stream_id.startswith(streams) or in_own_execution(event)):
                    if in_runs:
                        runs.add(in_runs, event)
                    else:
                        runs.flush()
                    self._apply_own(own, event, shard, position)
                positions[shard] = position
                folded += 1
        finally:
            runs.flush()
        return folded

    def apply(self, event: Event) -> bool:
        """Fold one event. Return False, with nothing changed, when its position was folded before."""
        return self.apply_many((event,)) == 1

    def _routes_of(self, tenant_id: str, organization_id: str) -> Routes:
        found = self._routes.get((tenant_id, organization_id))
        if found is None:
            found = Routes(self._lanes.values(), tenant_id, organization_id)
            self._routes[tenant_id, organization_id] = found
        return found

    def _apply_own(self, steps: tuple[Step, ...], event: Event, shard: int, position: int) -> None:
        for key_of, apply, ended, rows, lane in steps:
            row_id = key_of(event)
            if row_id is None:
                continue
            held = rows.get(row_id)
            if held is None:
                row = apply(None, event)
                if row is None:
                    continue
                held = rows[row_id] = Held(row, event.execution_id, shard, position, position)
            elif held.ended:
                continue
            else:
                row = apply(held.row, event)
                assert row is not None
                held.row = row
                held.last = position
            if self._keep_ended:
                self._touched[event.tenant_id, event.organization_id, lane.projection, row_id] = held
            if ended is not None and ended(row):
                held.ended = True
                if lane.leave:
                    del rows[row_id]
                    self._let_go(lane, (event.tenant_id, event.organization_id, lane.projection, row_id), held)

    def _apply_free(self, lanes: tuple[Lane, ...], event: Event) -> None:
        """Apply the user's folds. Any may refuse the event, so nothing is kept before all of them have taken it."""
        changed: list[tuple[Lane, Key, Held]] = []
        for lane in lanes:
            row_id = _row_id(lane, event)
            if row_id is None:
                continue
            key = (event.tenant_id, event.organization_id, lane.projection, row_id)
            held = lane.rows(event.tenant_id, event.organization_id).get(row_id)
            if held is not None and held.shard != event.shard:
                raise fold_failed(
                    lane.projection,
                    event,
                    f"its row {row_id!r} was made from shard {held.shard}, and there is no order between shards; "
                    "write all events of one object to one stream",
                )
            if held is not None and held.ended:
                continue
            apply = lane.fold.apply
            if event.fields_ref is not None and lane.fold.erased is not None:
                apply = lane.fold.erased
            row = apply(held.row if held is not None else None, event)
            if row is not None:
                execution_id, first = (
                    (event.execution_id, event.position) if held is None else (held.execution_id, held.first)
                )
                ended = lane.fold.ended(row)
                changed.append((lane, key, Held(row, execution_id, event.shard, first, event.position, ended=ended)))
        for lane, key, held in changed:
            lane.rows(key[0], key[1])[key[3]] = held
            if self._keep_ended:
                self._touched[key] = held

    def _upcast_erased(self, event: Event) -> Event:
        """Bring what is left of an erased event to the newest schema, if an upcaster can take it without its fields."""
        is_erased(event)
        try:
            return self._upcasters.upcast(event)
        except InputError:
            return event

    def _let_go(self, lane: Lane, key: Key, held: Held) -> None:
        lane.gone.add(row_number(key, lane.version, held.row))
        if self._on_ended is not None:
            self._on_ended(lane.folded(key, held))

    def keys_of(self, events: Iterable[Event]) -> list[RowKey]:
        """Return the rows to load and `seed` before the events are applied: all they may touch but those they open.

        Say with `skip_to` first what the stored rows have already: such events open nothing and touch nothing.
        """
        wanted: dict[tuple[str, str], dict[str, dict[str, bool]]] = {}
        seen: set[tuple[str, int, int | None, int | None]] = set()
        scope = execution_id = None
        for given in events:
            if given.position <= self._positions.get(given.shard, 0):
                continue
            event = self._upcasters.upcast(given) if given.fields_ref is None else self._upcast_erased(given)
            if scope != (event.tenant_id, event.organization_id):
                scope = (event.tenant_id, event.organization_id)
                routes, rows = self._routes_of(*scope), wanted.setdefault(scope, {})
                seen.clear()
            free, own, in_runs = routes[event.event_type]
            for lane in free:
                row_id = _row_id(lane, event)
                if row_id is not None:
                    rows.setdefault(lane.projection, {})[row_id] = True
            if event.execution_id != execution_id:
                execution_id = event.execution_id
                streams = streams_of(execution_id)
            if not (own or in_runs) or not (event.stream_id.startswith(streams) or in_own_execution(event)):
                continue
            # As in `Runs`: these name the rows that events of a run move, and have been named if they were seen.
            target = (event.event_type, event.execution_id, event.stage_id, event.loop_id)
            for step in own if target in seen else (*own, *in_runs):
                row_id = step.key(event)
                if row_id is not None:
                    of_lane = rows.setdefault(step.lane.projection, {})
                    if row_id not in of_lane:
                        of_lane[row_id] = not _opens(event, step.lane.projection, row_id)
            seen.add(target)
        return [
            RowKey(*scope, projection, row_id)
            for scope, rows in wanted.items()
            for projection, named in rows.items()
            for row_id, load in named.items()
            if load
        ]

    def seed(self, rows: Iterable[FoldedRow]) -> None:
        """Put in rows that were folded earlier; the state owns them from now on."""
        for folded in rows:
            lane = self._lanes[folded.key.projection]
            if folded.version != lane.version:
                raise _other_version(lane.projection, folded.version, lane.version)
            held = Held(folded.row, folded.execution_id, folded.shard, folded.first_position, folded.last_position)
            held.ended = lane.fold.ended(folded.row)
            if held.ended and lane.leave:
                self._let_go(lane, folded.key, held)
            else:
                lane.rows(folded.key.tenant_id, folded.key.organization_id)[folded.key.row_id] = held

    def skip_to(self, shard: int, position: int) -> None:
        """Ignore everything at or below a position, because the seeded rows have it already."""
        self._positions[shard] = max(position, self._positions.get(shard, 0))

    def touched(self) -> list[FoldedRow]:
        """Return the rows changed since the last call, when ended rows are kept: what a projector has to store."""
        rows = [self._lanes[key[2]].folded(key, held) for key, held in self._touched.items()]
        self._touched.clear()
        return rows

    def rows(self, projection: str) -> Iterator[FoldedRow]:
        """Yield the rows in memory of a projection. They are the state's own: read them before the next event."""
        lane = self._lanes[projection]
        return (lane.folded(key, held) for key, held in lane.items())

    def tallies(self) -> dict[str, Tally]:
        """Count every row, in memory or gone, by projection."""
        return {projection: lane.tally() for projection, lane in self._lanes.items()}

    def checksums(self) -> dict[str, dict[str, int | str]]:
        """Return how many rows each projection has and their combined checksum."""
        return {name: {"rows": tally.rows, "checksum": tally.hex()} for name, tally in self.tallies().items()}

    def checksum(self) -> str:
        """Return one digest for the whole state."""
        return state_checksum(self.tallies())

    def export(self) -> dict[str, Any]:
        """Return the whole state as plain JSON values, independent of what is folded later."""
        return {
            "format": EXPORT_FORMAT,
            "upcasters": self._upcasters.digest(),
            "positions": {str(shard): position for shard, position in sorted(self._positions.items())},
            "projections": {projection: lane.export() for projection, lane in self._lanes.items()},
        }

    @classmethod
    def restore(
        cls,
        folds: Iterable[Fold],
        exported: Mapping[str, Any],
        *,
        upcasters: Upcasters | None = None,
        keep_ended: bool = False,
        evict: Collection[str] | None = None,
        on_ended: Callable[[FoldedRow], None] | None = None,
    ) -> FoldState:
        """Return a state that goes on where the exported one stood; one made by other code is refused."""
        state = cls(folds, upcasters=upcasters, keep_ended=keep_ended, evict=evict, on_ended=on_ended)
        if exported["format"] != EXPORT_FORMAT or exported["upcasters"] != state._upcasters.digest():
            raise Unsupported("the snapshot was made with other upcasters or in another format; fold from the ledger")
        if exported["projections"].keys() != state._lanes.keys():
            raise Unsupported("the snapshot was made by other folds; fold from the ledger")
        for projection, part in exported["projections"].items():
            lane = state._lanes[projection]
            if part["version"] != lane.version:
                raise _other_version(projection, part["version"], lane.version)
            lane.gone.merge(Tally(part["gone"]["rows"], int(part["gone"]["sum"], 16)))
            state.seed(lane.imported(part["rows"]))
        state._positions = {int(shard): position for shard, position in exported["positions"].items()}
        return state


def _row_id(lane: Lane, event: Event) -> str | None:
    """Name the row an event touches; an erased one that no longer says which touches none."""
    try:
        return lane.fold.key(event)
    except FoldFailed:
        if event.fields_ref is None:
            raise
        return None


def _opens(event: Event, projection: str, row_id: str) -> bool:
    """Tell whether no row of that name can have been there before: it is named after the stream that begins here."""
    return (
        event.stream_version == 1
        and event.stream_id == f"{streams_of(event.execution_id)}{projection}/{event.aggregate_id}"
        and row_id == f"{event.execution_id}/{event.aggregate_id}"
    )


def _other_version(projection: str, found: int, known: int) -> Unsupported:
    return Unsupported(
        f"rows of projection {projection} were made by version {found} of its fold, and this is version {known}",
        hint="fold them anew from the ledger",
    )
