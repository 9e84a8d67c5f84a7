"""All rows of an organization: events of its pipelines, people and open work go in, each stream in its order; rows
come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from noetl.kernel.projections.folds.fold import Row
from noetl.kernel.projections.folds.open_work import OpenWork
from noetl.kernel.projections.folds.organization.alerts import ALERTS_CHANGES
from noetl.kernel.projections.folds.organization.changes import CHANGES_CHANGES
from noetl.kernel.projections.folds.organization.dags import DAG_CHANGES
from noetl.kernel.projections.folds.organization.partitions import LINEAGE_CHANGES, PARTITION_CHANGES, PINS_CHANGES
from noetl.kernel.projections.folds.organization.people import PEOPLE_CHANGES, QUERIES_CHANGES
from noetl.kernel.projections.folds.organization.schedules import SCHEDULES_CHANGES
from noetl.kernel.projections.folds.organization.tables import KEYS, Table, Tables
from noetl.kernel.projections.folds.organization.tasks import TASK_CHANGES
from noetl.kernel.projections.folds.organization.views import VIEWS_CHANGES
from noetl.model.catalogue.dispatch import by_type
from noetl.model.catalogue.rows import types_applied_by, types_with_rows
from noetl.model.event import Event

_RULES: Final = {
    **DAG_CHANGES,
    **PARTITION_CHANGES,
    **TASK_CHANGES,
    **PEOPLE_CHANGES,
    **SCHEDULES_CHANGES,
    **CHANGES_CHANGES,
    **LINEAGE_CHANGES,
    **QUERIES_CHANGES,
    **ALERTS_CHANGES,
    **PINS_CHANGES,
    **VIEWS_CHANGES,
}

PIPELINE_EVENTS: Final = frozenset(types_with_rows()) - frozenset(types_applied_by("apply_open_work"))
"""The events that say something about pipelines or people."""

_CHANGES: Final = by_type(_RULES, PIPELINE_EVENTS)

_OF_MANY_STREAMS: Final = "dataset_cursor"


class Pipelines:
    """The rows of one organization. Streams may come in any order: no row needs an order between them."""

    def __init__(self) -> None:
        self._tables = Tables()

    def tables(self) -> dict[str, Table]:
        """Return the rows by the name of their table."""
        return {name: self._tables[name] for name in KEYS}

    def settled(self) -> Iterator[tuple[str, str, Row]]:
        """Give table, key and row of all that no other stream can change, and forget it: for use when a stream is read."""
        for name in KEYS:
            if name != _OF_MANY_STREAMS:
                for key, row in self._tables.pop(name, {}).items():
                    yield name, key, row

    def apply(self, event: Event) -> None:
        """Change the rows as one event says; other events change nothing."""
        change = _CHANGES[event.event_type]
        if change is not None:
            change(self._tables, event)


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
