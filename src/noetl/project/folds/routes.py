"""Where an event goes: its type goes in, the lanes of the folds that listen to it come out, looked up once per type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from noetl.model.event import Event
from noetl.project.folds.checksum import Tally, row_number
from noetl.project.folds.fold import Fold, FoldedRow, Row, RowKey, copied


class Held:
    """A row in memory with its lineage."""

    __slots__ = ("ended", "execution_id", "first", "last", "row", "shard")

    def __init__(self, row: Row, execution_id: int, shard: int, first: int, last: int, *, ended: bool = False) -> None:
        self.row = row
        self.execution_id = execution_id
        self.shard = shard
        self.first = first
        self.last = last
        self.ended = ended


class Lane(NamedTuple):
    """One fold's place in a state. Its functions stand here so that the loop over events looks nothing up twice."""

    key_of: Callable[[Event], str | None]
    apply: Callable[[Row | None, Event], Row | None]
    ended: Callable[[Row], bool]
    rows: dict[tuple[str, str, str, str], Held]
    """Keys are plain tuples: they equal the RowKey of the same fields and are made several times faster."""
    projection: str
    version: int
    fold: Fold
    gone: Tally
    """The rows that have ended and left memory."""
    leave: bool
    """Whether rows leave memory when they end."""

    @classmethod
    def of(cls, fold: Fold, *, leave: bool) -> Lane:
        """Return an empty lane; rows that may open twice never leave it."""
        leave = leave and fold.per_execution
        return cls(fold.key, fold.apply, fold.ended, {}, fold.projection, fold.version, fold, Tally(), leave)

    def folded(self, key: tuple[str, str, str, str], held: Held) -> FoldedRow:
        """Return a held row in full."""
        return FoldedRow(RowKey(*key), self.version, held.execution_id, held.shard, held.first, held.last, held.row)

    def tally(self) -> Tally:
        """Count every row, in memory or gone."""
        tally = Tally(self.gone.rows, self.gone.total)
        for key, held in self.rows.items():
            tally.add(row_number(key, self.version, held.row))
        return tally

    def export(self) -> dict[str, Any]:
        """Return the lane as plain JSON values that share nothing with it."""
        return {
            "version": self.version,
            "gone": {"rows": self.gone.rows, "sum": self.gone.hex()},
            "rows": [
                [
                    tenant_id,
                    organization_id,
                    row_id,
                    str(held.execution_id),
                    held.shard,
                    held.first,
                    held.last,
                    copied(held.row),
                ]
                for (tenant_id, organization_id, _, row_id), held in sorted(self.rows.items(), key=itemgetter(0))
            ],
        }

    def imported(self, rows: Iterable[list[Any]]) -> Iterator[FoldedRow]:
        """Yield the rows `export` wrote."""
        for tenant_id, organization_id, row_id, execution_id, shard, first, last, row in rows:
            key = RowKey(tenant_id, organization_id, self.projection, row_id)
            yield FoldedRow(key, self.version, int(execution_id), shard, first, last, copied(row))


class Routes(dict[str, tuple[tuple[Lane, ...], tuple[Lane, ...]]]):
    """Event type to lanes: first those of the user's folds, then those of folds per execution."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        super().__init__()
        self._lanes = tuple(lanes)

    def __missing__(self, event_type: str) -> tuple[tuple[Lane, ...], tuple[Lane, ...]]:
        heard = [lane for lane in self._lanes if lane.fold.listens_to(event_type)]
        free = tuple(lane for lane in heard if not lane.fold.per_execution)
        own = tuple(lane for lane in heard if lane.fold.per_execution)
        self[event_type] = free, own
        return free, own
