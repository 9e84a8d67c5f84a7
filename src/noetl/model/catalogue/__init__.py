"""Every event type of the product: past tense, one sentence each, with the fields it must carry.

In go one tuple of types per noun, a module each; out come all of them in one order and by name. A type is told here and
nowhere else.
"""

from __future__ import annotations

from typing import Final

from noetl.model.catalogue.alerts import ALERTS_TYPES
from noetl.model.catalogue.changes import CHANGES_TYPES
from noetl.model.catalogue.commands import COMMAND_TYPES
from noetl.model.catalogue.datasets import DAG_TYPES, DATASET_TYPES, LINEAGE_TYPES
from noetl.model.catalogue.executions import EXECUTION_TYPES, PLAYBOOK_TYPES
from noetl.model.catalogue.frames import FRAME_TYPES
from noetl.model.catalogue.loops import LOOP_TYPES
from noetl.model.catalogue.people import PEOPLE_TYPES
from noetl.model.catalogue.queries import CURATED_TYPES, QUERIES_TYPES
from noetl.model.catalogue.retention import ARCHIVE_TYPES, PINS_TYPES
from noetl.model.catalogue.schedules import SCHEDULES_TYPES
from noetl.model.catalogue.tasks import TASK_TYPES
from noetl.model.catalogue.views import VIEWS_TYPES
from noetl.model.event_type import OPEN_PREFIX, EventType

EVENT_TYPES: Final[tuple[EventType, ...]] = (
    *EXECUTION_TYPES,
    *COMMAND_TYPES,
    *LOOP_TYPES,
    *FRAME_TYPES,
    *PLAYBOOK_TYPES,
    *ARCHIVE_TYPES,
    *DAG_TYPES,
    *DATASET_TYPES,
    *TASK_TYPES,
    *PEOPLE_TYPES,
    *SCHEDULES_TYPES,
    *CHANGES_TYPES,
    *LINEAGE_TYPES,
    *QUERIES_TYPES,
    *ALERTS_TYPES,
    *PINS_TYPES,
    *VIEWS_TYPES,
    *CURATED_TYPES,
)
"""The catalogue, in the order a run meets it."""

BY_NAME: Final[dict[str, EventType]] = {kind.name: kind for kind in EVENT_TYPES}

ENDING: Final[frozenset[str]] = frozenset(kind.name for kind in EVENT_TYPES if kind.ends_execution)
"""Types that end an execution."""


def event_type(name: str) -> EventType | None:
    """Look a type up; the user's own `business.` types are made on the spot."""
    found = BY_NAME.get(name)
    if found is None and name.startswith(OPEN_PREFIX) and len(name) > len(OPEN_PREFIX):
        found = EventType(
            name=name, sentence="A fact of the user's own business.", aggregate="business_object", observed=True
        )
    return found
