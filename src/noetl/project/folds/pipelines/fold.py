"""All rows of an organization: events of pipelines and people go in, each stream in its order, and the rows come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noetl.model.catalogue.dispatch import by_type
from noetl.model.catalogue.rows import types_applied_by, types_with_rows
from noetl.model.event import Event
from noetl.project.folds.fold import Row
from noetl.project.folds.pipelines.alerts import ALERTS_CHANGES
from noetl.project.folds.pipelines.changes import CHANGES_CHANGES
from noetl.project.folds.pipelines.dags import DAG_CHANGES
from noetl.project.folds.pipelines.lineage import LINEAGE_CHANGES
from noetl.project.folds.pipelines.partitions import PARTITION_CHANGES
from noetl.project.folds.pipelines.people import PEOPLE_CHANGES
from noetl.project.folds.pipelines.pins import PINS_CHANGES
from noetl.project.folds.pipelines.queries import QUERIES_CHANGES
from noetl.project.folds.pipelines.schedules import SCHEDULES_CHANGES
from noetl.project.folds.pipelines.tables import KEYS, Table, Tables
from noetl.project.folds.pipelines.tasks import TASK_CHANGES
from noetl.project.folds.pipelines.views import VIEWS_CHANGES

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
