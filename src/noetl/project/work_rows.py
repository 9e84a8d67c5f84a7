"""The rows of one organization's work, folded from the events of its transitions: open work and pipelines together."""

from __future__ import annotations

from collections.abc import Iterable

from noetl.model.event import Event
from noetl.project.folds.fold import Row
from noetl.project.folds.open_work import OpenWork
from noetl.project.folds.pipelines.fold import Pipelines

_OF_EXECUTIONS = frozenset(OpenWork().tables())
_TASK_STREAM = "task/"


class FoldedRows:
    """See `WorkRows` for the promises."""

    def __init__(self) -> None:
        self._open: dict[int, OpenWork] = {}
        self._pipelines = Pipelines()

    def apply(self, event: Event) -> None:
        """Change the rows as one event says."""
        if event.stream_id.startswith("execution/"):
            self._open.setdefault(event.execution_id, OpenWork()).apply(event)
        self._pipelines.apply(event)

    def row(self, table: str, execution_id: int, row_id: str) -> Row | None:
        """Return a row by its table and id."""
        if table not in _OF_EXECUTIONS:
            return self._pipelines.tables()[table].get(row_id)
        work = self._open.get(execution_id)
        return None if work is None else work.tables()[table].get(row_id)

    def rows(self, table: str) -> dict[str, Row]:
        """Return all rows of a table, those of an execution named by its id too."""
        if table not in _OF_EXECUTIONS:
            return self._pipelines.tables()[table]
        return {
            f"{execution_id}/{row_id}": row
            for execution_id, work in self._open.items()
            for row_id, row in work.tables()[table].items()
        }

    def touched(self, event: Event) -> Iterable[tuple[str, int, str]]:
        """Return the rows with a lease that an event may speak of."""
        if event.command_id is not None:
            yield "command", event.execution_id, event.command_id
        if event.frame_id is not None:
            yield "frame", event.execution_id, str(event.frame_id)
        if event.stream_id.startswith(_TASK_STREAM):
            yield "task", 0, event.stream_id.removeprefix(_TASK_STREAM)
