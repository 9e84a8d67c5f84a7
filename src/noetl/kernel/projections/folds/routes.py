"""Where an event goes: its type goes in, the folds that listen to it come out; long runs of events are folded
together.

Most events of a large execution are about frames and change the same few rows, so they wait and are folded several
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from noetl.kernel.projections.folds.checksum import Tally, row_number
from noetl.kernel.projections.folds.fold import Fold, FoldedRow, Row, RowKey, copied
from noetl.model.event import Event


class Held(msgspec.Struct):
    """A row in memory with its lineage."""

    row: Row
    execution_id: int
    shard: int
    first: int
    last: int
    ended: bool = False


Key = tuple[str, str, str, str]
"""A row's full name as a plain tuple: it equals the RowKey of the same fields and is made several times faster."""


class Step(NamedTuple):
    """What one fold does with events of one type in one scope, with everything looked up beforehand."""

    key: Callable[[Event], str | None]
    apply: Callable[[Row | None, Event], Row | None]
    ended: Callable[[Row], bool] | None
    """None when events of this type end no row."""
    rows: dict[str, Held]
    lane: Lane


class Lane:
    """One fold's place in a state: the rows it holds, by scope and id, and the tally of those that have left."""

    def __init__(self, fold: Fold, *, leave: bool) -> None:
        """Make an empty lane; rows that may open twice never leave it."""
        self.fold = fold
        self.projection = fold.projection
        self.version = fold.version
        self.leave = leave and fold.per_execution
        self.gone = Tally()
        self._scopes: dict[tuple[str, str], dict[str, Held]] = {}

    def rows(self, tenant_id: str, organization_id: str) -> dict[str, Held]:
        """Return the rows of a scope, to be changed in place."""
        return self._scopes.setdefault((tenant_id, organization_id), {})

    def items(self) -> Iterator[tuple[Key, Held]]:
        """Yield every row in memory with its key."""
        for (tenant_id, organization_id), rows in self._scopes.items():
            for row_id, held in rows.items():
                yield (tenant_id, organization_id, self.projection, row_id), held

    def folded(self, key: Key, held: Held) -> FoldedRow:
        """Return a held row in full."""
        return FoldedRow(RowKey(*key), self.version, held.execution_id, held.shard, held.first, held.last, held.row)

    def tally(self) -> Tally:
        """Count every row, in memory or gone."""
        tally = Tally(self.gone.rows, self.gone.total)
        for key, held in self.items():
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
                for (tenant_id, organization_id, _, row_id), held in sorted(self.items(), key=itemgetter(0))
            ],
        }

    def imported(self, rows: Iterable[list[Any]]) -> Iterator[FoldedRow]:
        """Yield the rows `export` wrote."""
        for tenant_id, organization_id, row_id, execution_id, shard, first, last, row in rows:
            key = RowKey(tenant_id, organization_id, self.projection, row_id)
            yield FoldedRow(key, self.version, int(execution_id), shard, first, last, copied(row))


class Route(NamedTuple):
    """Where events of one type go in one scope."""

    free: tuple[Lane, ...]
    """The lanes of the user's folds."""
    own: tuple[Step, ...]
    """The folds per execution that take each event by itself."""
    runs: tuple[Step, ...]
    """The folds per execution that take events of this type several at a time."""


class Routes(dict[str, Route]):
    """For one scope, event type to where its events go."""

    def __init__(self, lanes: Iterable[Lane], tenant_id: str, organization_id: str) -> None:
        super().__init__()
        self._lanes = tuple(lanes)
        self._scope = (tenant_id, organization_id)

    def __missing__(self, event_type: str) -> Route:
        heard = [lane for lane in self._lanes if lane.fold.listens_to(event_type)]
        own = [lane for lane in heard if lane.fold.per_execution]
        route = self[event_type] = Route(
            free=tuple(lane for lane in heard if not lane.fold.per_execution),
            own=tuple(self._step(lane, event_type) for lane in own if event_type not in lane.fold.run_types),
            runs=tuple(self._step(lane, event_type) for lane in own if event_type in lane.fold.run_types),
        )
        return route

    def _step(self, lane: Lane, event_type: str) -> Step:
        fold = lane.fold
        ended = fold.ended if fold.may_end_with(event_type) else None
        return Step(fold.key, fold.apply, ended, lane.rows(*self._scope), lane)


class Runs:
    """The waiting events of one scope, by row."""

    def __init__(self, touched: Callable[[Key, Held], None] | None) -> None:
        """Take who wants to know which rows were changed."""
        self._touched = touched
        self._waiting: dict[tuple[str, str], tuple[Step, Held, list[Event]]] = {}
        self._targets: dict[tuple[str, int, int | None, int | None], list[list[Event]]] = {}

    def add(self, steps: Iterable[Step], event: Event) -> None:
        """Let an event wait for every open row it moves."""
        # These name the rows of execution, stage and loop; frames by the thousand share them.
        target = (event.event_type, event.execution_id, event.stage_id, event.loop_id)
        lists = self._targets.get(target)
        if lists is None:
            lists = self._targets[target] = self._aim(steps, event)
        for waiting in lists:
            waiting.append(event)

    def flush(self) -> None:
        """Fold what waits."""
        for (_, row_id), (step, held, events) in self._waiting.items():
            if not events:
                continue
            apply_run = step.lane.fold.apply_run
            assert apply_run is not None
            apply_run(held.row, events)
            last = events[-1]
            held.last = last.position
            if self._touched is not None:
                self._touched((last.tenant_id, last.organization_id, step.lane.projection, row_id), held)
        self._waiting.clear()
        self._targets.clear()

    def _aim(self, steps: Iterable[Step], event: Event) -> list[list[Event]]:
        lists = []
        for step in steps:
            row_id = step.key(event)
            held = None if row_id is None else step.rows.get(row_id)
            if row_id is not None and held is not None and not held.ended:
                entry = self._waiting.setdefault((step.lane.projection, row_id), (step, held, []))
                lists.append(entry[2])
        return lists
