"""The event types of an execution, of the steps it enters and of the catalog of playbooks. `catalogue` joins all
types.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.model.event_type import EventType

_ALL_OPEN_WORK: Final = ("execution_head", "command", "stage", "frame")

EXECUTION_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="execution.requested",
        sentence="Somebody asked for an execution.",
        aggregate="execution",
        retried=True,
        opens=("execution_head",),
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="execution.completed",
        sentence="The execution ended well.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="execution.cancelled",
        sentence="The execution was cancelled.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="execution.failed",
        sentence="The execution cannot go on, and why.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="playbook.initialized",
        sentence="A playbook's run began.",
        aggregate="execution",
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="playbook.completed",
        sentence="A playbook's run ended well.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="playbook.failed",
        sentence="A playbook's run ended in failure.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="workflow.initialized",
        sentence="The workflow of a playbook began.",
        aggregate="execution",
        projections=("execution",),
    ),
    EventType(
        name="workflow.completed",
        sentence="The workflow of a playbook ended well.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="workflow.failed",
        sentence="The workflow of a playbook ended in failure.",
        aggregate="execution",
        ends=_ALL_OPEN_WORK,
        overrules_holders=True,
        projections=("execution",),
        steers=True,
    ),
    EventType(
        name="step.entered",
        sentence="A step was entered.",
        aggregate="execution",
        needs=("node_name",),
        steers=True,
    ),
    EventType(
        name="step.exited",
        sentence="A step was left.",
        aggregate="execution",
        needs=("node_name",),
        steers=True,
    ),
    EventType(
        name="step.skipped",
        sentence="A step was passed over, and why.",
        aggregate="execution",
        needs=("node_name",),
        steers=True,
    ),
)
"""In the order a run meets them."""


class CatalogRegistered(msgspec.Struct, frozen=True):
    """Which version of what was registered."""

    path: str
    version: int
    kind: str
    digest: str


PLAYBOOK_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="catalog.registered",
        sentence="A new version of a playbook was registered under its path.",
        aggregate="catalog",
        needs=("catalog_id", "payload_ref"),
        meta=CatalogRegistered,
        opens=("catalog",),
    ),
    EventType(
        name="catalog.removed",
        sentence="A version was taken out of use; executions of it go on.",
        aggregate="catalog",
        needs=("catalog_id",),
        changes=("catalog",),
    ),
    EventType(
        name="catalog.restored",
        sentence="A version that was taken out of use may be used again.",
        aggregate="catalog",
        needs=("catalog_id",),
        changes=("catalog",),
    ),
)
"""In the order a version meets them."""
