"""The state of a set of folds: events go in, in position order per shard; rows, checksums and snapshots come out.

The same state serves replay, which forgets ended rows, and live projectors, which load the rows a batch touches, fold
the batch and store what changed. Why both agree is told in `noetl.project`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from noetl.errors import Unsupported
from noetl.model.event import Event
from noetl.project.folds.business_object import fold_failed
from noetl.project.folds.checksum import Tally, row_number, state_checksum
from noetl.project.folds.fold import Fold, FoldedRow, RowKey, in_own_execution
from noetl.project.folds.routes import Held, Lane, Routes
from noetl.project.upcast import Upcasters

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
            fold.projection: Lane.of(fold, leave=not keep_ended and (evict is None or fold.projection in evict))
            for fold in folds
        }
        self._routes = Routes(self._lanes.values())
        self._upcasters = upcasters or Upcasters()
        self._keep_ended = keep_ended
        self._on_ended = on_ended
        self._positions: dict[int, int] = {}
        self._touched: dict[tuple[str, str, str, str], Held] = {}

    @property
    def positions(self) -> dict[int, int]:
        """The last position folded in each shard."""
        return dict(self._positions)

    @property
    def versions(self) -> dict[str, int]:
        """The version of each fold, by projection."""
        return {projection: lane.version for projection, lane in self._lanes.items()}

    def apply_many(self, events: Iterable[Event]) -> int:
        """Fold events in their order; return how many were new."""
        return sum(map(self.apply, events))

    def apply(self, event: Event) -> bool:
        """Fold one event. Return False, with nothing changed, when its position was folded before."""
        shard, position = event.shard, event.position
        if position <= self._positions.get(shard, 0):
            return False
        event = self._upcasters.upcast(event)
        free, own = self._routes[event.event_type]
        if free:
            self._apply_free(free, event)
        if own and in_own_execution(event):
            self._apply_own(own, event)
        self._positions[shard] = position
        return True

    def _apply_own(self, lanes: tuple[Lane, ...], event: Event) -> None:
        tenant_id, organization_id, position = event.tenant_id, event.organization_id, event.position
        for lane in lanes:
            key_of, apply, ended, rows, projection, _, _, _, leave = lane
            row_id = key_of(event)
            if row_id is None:
                continue
            key = (tenant_id, organization_id, projection, row_id)
            held = rows.get(key)
            if held is None:
                row = apply(None, event)
                if row is None:
                    continue
                held = rows[key] = Held(row, event.execution_id, event.shard, position, position)
            elif held.ended:
                continue
            else:
                row = apply(held.row, event)
                assert row is not None
                held.row = row
                held.last = position
            if not leave:
                held.ended = ended(row)
                if self._keep_ended:
                    self._touched[key] = held
            elif ended(row):
                self._let_go(lane, key, held)

    def _apply_free(self, lanes: tuple[Lane, ...], event: Event) -> None:
        """Apply the user's folds. Any may refuse the event, so nothing is kept before all of them have taken it."""
        changed: list[tuple[Lane, RowKey, Held]] = []
        for lane in lanes:
            row_id = lane.key_of(event)
            if row_id is None:
                continue
            key = RowKey(event.tenant_id, event.organization_id, lane.projection, row_id)
            held = lane.rows.get(key)
            if held is not None and held.shard != event.shard:
                raise fold_failed(
                    lane.projection,
                    event,
                    f"its row {row_id!r} was made from shard {held.shard}, and there is no order between shards; "
                    "write all events of one object to one stream",
                )
            if held is not None and held.ended:
                continue
            row = lane.apply(held.row if held is not None else None, event)
            if row is not None:
                execution_id, first = (
                    (event.execution_id, event.position) if held is None else (held.execution_id, held.first)
                )
                ended = lane.ended(row)
                changed.append((lane, key, Held(row, execution_id, event.shard, first, event.position, ended=ended)))
        for lane, key, held in changed:
            lane.rows[key] = held
            if self._keep_ended:
                self._touched[key] = held

    def _let_go(self, lane: Lane, key: tuple[str, str, str, str], held: Held) -> None:
        del lane.rows[key]
        lane.gone.add(row_number(key, lane.version, held.row))
        if self._on_ended is not None:
            self._on_ended(lane.folded(key, held))

    def keys_of(self, event: Event) -> list[RowKey]:
        """Return the rows the event may touch: what to load and `seed` before it is applied."""
        event = self._upcasters.upcast(event)
        free, own = self._routes[event.event_type]
        lanes = free + own if own and in_own_execution(event) else free
        named = ((lane.projection, lane.key_of(event)) for lane in lanes)
        return [
            RowKey(event.tenant_id, event.organization_id, projection, row_id)
            for projection, row_id in named
            if row_id is not None
        ]

    def seed(self, rows: Iterable[FoldedRow]) -> None:
        """Put in rows that were folded earlier; the state owns them from now on."""
        for folded in rows:
            lane = self._lanes[folded.key.projection]
            if folded.version != lane.version:
                raise _other_version(lane.projection, folded.version, lane.version)
            held = Held(folded.row, folded.execution_id, folded.shard, folded.first_position, folded.last_position)
            held.ended = lane.ended(folded.row)
            lane.rows[folded.key] = held
            if held.ended and lane.leave:
                self._let_go(lane, folded.key, held)

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
        return (lane.folded(key, held) for key, held in lane.rows.items())

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


def _other_version(projection: str, found: int, known: int) -> Unsupported:
    return Unsupported(
        f"rows of projection {projection} were made by version {found} of its fold, and this is version {known}",
        hint="fold them anew from the ledger",
    )
