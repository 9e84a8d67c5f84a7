"""Events that come in long runs wait here, and are folded into their rows several at a time.

Nearly all events of a large execution are told by frames, and each moves the same few rows: those of the execution, the
stage and the loop. Folding a run of them at once gives the same rows for a fraction of the time. Whoever reads the rows,
and every event that opens or ends one, must `flush` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from noetl.model.event import Event
from noetl.project.folds.routes import Held, Key, Step


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
