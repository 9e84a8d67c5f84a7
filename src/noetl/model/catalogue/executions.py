"""The event types of an execution and of the steps it enters. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final

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
