"""Every event type of the product: past tense, one sentence each, with the fields it must carry."""

from __future__ import annotations

from typing import Literal

import msgspec

from noetl.model.catalogue_alerts import ALERTS_TYPES
from noetl.model.catalogue_changes import CHANGES_TYPES
from noetl.model.catalogue_curated import CURATED_TYPES
from noetl.model.catalogue_lineage import LINEAGE_TYPES
from noetl.model.catalogue_people import PEOPLE_TYPES
from noetl.model.catalogue_pins import PINS_TYPES
from noetl.model.catalogue_pipelines import PIPELINE_TYPES
from noetl.model.catalogue_queries import QUERIES_TYPES
from noetl.model.catalogue_schedules import SCHEDULES_TYPES
from noetl.model.catalogue_views import VIEWS_TYPES
from noetl.model.event_type import OPEN_PREFIX, EventType


class CheckpointCommitted(msgspec.Struct, frozen=True):
    """Up to where which shard was projected, and by which barrier."""

    shard: int
    epoch: int
    position: int


class LoopStarted(msgspec.Struct, frozen=True):
    """How large the loop is and how it runs."""

    collection_size: int | None
    mode: Literal["sequential", "parallel", "cursor", "fanout"]


class FanoutStarted(msgspec.Struct, frozen=True):
    """How many shards the fan-out has."""

    total_shards: int


class LoopTally(msgspec.Struct, frozen=True):
    """The final count of a loop."""

    total: int
    completed: int
    failed: int


class LoopDone(msgspec.Struct, frozen=True):
    """How the loop ended."""

    status: Literal["ok", "error"]
    context: LoopTally


class FaninTally(msgspec.Struct, frozen=True):
    """The final count of a fan-out."""

    done: int
    failed: int
    total: int


class FaninCompleted(msgspec.Struct, frozen=True):
    """How the fan-out ended."""

    status: Literal["complete", "failed", "partial"]
    context: FaninTally


class StageOpened(msgspec.Struct, frozen=True):
    """What the stage works on."""

    kind: Literal["loop", "fanout", "reduce"]
    dsl_ref: str


class FrameDispatched(msgspec.Struct, frozen=True):
    """Who works on which rows, for the how-manieth time."""

    attempt: int
    worker: str
    row_count: int


class FrameCommitted(msgspec.Struct, frozen=True):
    """What the frame did."""

    attempt: int
    row_count: int
    failed_count: int = 0


class Attempt(msgspec.Struct, frozen=True):
    """Which attempt this is about."""

    attempt: int


class WorkStarted(msgspec.Struct, frozen=True):
    """By which attempt, and the names Spark knows it by."""

    attempt: int
    application_id: str
    job_tag: str


class CommandIssued(msgspec.Struct, frozen=True):
    """What kind of work the command asks for."""

    tool_kind: str


class CatalogRegistered(msgspec.Struct, frozen=True):
    """Which version of what was registered."""

    path: str
    version: int
    kind: str
    digest: str


class PartitionArchived(msgspec.Struct, frozen=True):
    """Which partition of the ledger was archived."""

    partition: str
    events: int
    executions: int
    first_execution_id: str
    last_execution_id: str
    bounds: dict[str, tuple[int, int]]


class ArchiveRemoved(msgspec.Struct, frozen=True):
    """Which partition's archive was given up."""

    partition: str


_FRAME_IDS = ("stage_id", "frame_id")
_SHARD_IDS = ("node_name", "loop_id", "shard_id")

ROW_TYPES: tuple[EventType, ...] = (
    *PIPELINE_TYPES,
    *PEOPLE_TYPES,
    *SCHEDULES_TYPES,
    *CHANGES_TYPES,
    *LINEAGE_TYPES,
    *QUERIES_TYPES,
    *ALERTS_TYPES,
    *PINS_TYPES,
    *VIEWS_TYPES,
)
"""Types whose events change rows of pipelines, of people and of what is around them."""

EVENT_TYPES: tuple[EventType, ...] = (
    EventType(
        name="execution.requested", sentence="Somebody asked for an execution.", aggregate="execution", retried=True
    ),
    EventType(name="execution.completed", sentence="The execution ended well.", aggregate="execution", ends=True),
    EventType(name="execution.cancelled", sentence="The execution was cancelled.", aggregate="execution", ends=True),
    EventType(
        name="execution.failed", sentence="The execution cannot go on, and why.", aggregate="execution", ends=True
    ),
    EventType(name="playbook.initialized", sentence="A playbook's run began.", aggregate="execution"),
    EventType(name="playbook.completed", sentence="A playbook's run ended well.", aggregate="execution", ends=True),
    EventType(name="playbook.failed", sentence="A playbook's run ended in failure.", aggregate="execution", ends=True),
    EventType(name="workflow.initialized", sentence="The workflow of a playbook began.", aggregate="execution"),
    EventType(
        name="workflow.completed", sentence="The workflow of a playbook ended well.", aggregate="execution", ends=True
    ),
    EventType(
        name="workflow.failed",
        sentence="The workflow of a playbook ended in failure.",
        aggregate="execution",
        ends=True,
    ),
    EventType(name="step.entered", sentence="A step was entered.", aggregate="execution", needs=("node_name",)),
    EventType(name="step.exited", sentence="A step was left.", aggregate="execution", needs=("node_name",)),
    EventType(
        name="step.skipped", sentence="A step was passed over, and why.", aggregate="execution", needs=("node_name",)
    ),
    EventType(
        name="command.issued",
        sentence="One step's work was made available to workers.",
        aggregate="command",
        needs=("node_name", "command_id"),
        meta=CommandIssued,
        once_per="command_id",
    ),
    EventType(
        name="command.claimed",
        sentence="A worker took a lease on a command.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
    ),
    EventType(
        name="command.started",
        sentence="A command's frames were about to be given to Spark, under this application and tag.",
        aggregate="command",
        needs=("command_id",),
        meta=WorkStarted,
    ),
    EventType(
        name="command.completed",
        sentence="A command's work is done.",
        aggregate="command",
        needs=("command_id",),
        retried=True,
    ),
    EventType(
        name="command.attempt_failed",
        sentence="One attempt at a command failed; another may follow.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
        retried=True,
    ),
    EventType(
        name="command.abandoned",
        sentence="The command's lease ran out and the command is free again.",
        aggregate="command",
        needs=("command_id",),
        meta=Attempt,
    ),
    EventType(
        name="command.failed",
        sentence="A command failed for good.",
        aggregate="command",
        needs=("command_id",),
        retried=True,
    ),
    EventType(
        name="artifact.stored",
        sentence="A payload was put into the store by a task, to stay for as long as this event is kept.",
        aggregate="artifact",
        needs=("node_name", "payload_ref"),
    ),
    EventType(
        name="loop.started",
        sentence="A loop step was entered and its collection is fixed.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        meta=LoopStarted,
    ),
    EventType(
        name="loop.item",
        sentence="One row of a loop without frames was dispatched.",
        aggregate="loop",
        needs=("node_name", "loop_id", "current_index"),
    ),
    EventType(
        name="loop.done",
        sentence="Every row of the loop has ended.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        result=LoopDone,
        once_per="loop_id",
    ),
    EventType(
        name="loop.fanout.started",
        sentence="A fan-out was entered and its shards are fixed.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        meta=FanoutStarted,
    ),
    EventType(
        name="loop.shard.enqueued",
        sentence="One shard of a fan-out was made available.",
        aggregate="loop",
        needs=("node_name", "loop_id", "shard_id", "current_index"),
    ),
    EventType(
        name="loop.shard.done",
        sentence="One shard of a fan-out ended well.",
        aggregate="loop",
        needs=_SHARD_IDS,
        retried=True,
    ),
    EventType(
        name="loop.shard.failed",
        sentence="One shard of a fan-out failed.",
        aggregate="loop",
        needs=_SHARD_IDS,
        retried=True,
    ),
    EventType(
        name="loop.shard.abandoned",
        sentence="The lease of a fan-out's shard ran out and the shard is free again.",
        aggregate="loop",
        needs=_SHARD_IDS,
        meta=Attempt,
    ),
    EventType(
        name="loop.shard.attempt_failed",
        sentence="One attempt at a shard failed; another may follow.",
        aggregate="loop",
        needs=_SHARD_IDS,
        meta=Attempt,
        retried=True,
    ),
    EventType(
        name="loop.fanin.completed",
        sentence="Every shard of the fan-out has ended.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        result=FaninCompleted,
        once_per="loop_id",
    ),
    EventType(
        name="stage.opened",
        sentence="A loop, fan-out or reduce step was opened for frames.",
        aggregate="stage",
        needs=("node_name", "stage_id"),
        meta=StageOpened,
    ),
    EventType(
        name="stage.closed",
        sentence="All frames of the stage have ended.",
        aggregate="stage",
        needs=("node_name", "stage_id", "status"),
    ),
    EventType(
        name="frame.dispatched",
        sentence="A worker took a lease on a window of rows, named before work starts.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=FrameDispatched,
    ),
    EventType(
        name="frame.checkpointed",
        sentence="A worker recorded how far it got in its frame.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        retried=True,
    ),
    EventType(
        name="checkpoint.committed",
        sentence="Projections cover what was told of the execution up to a position.",
        aggregate="checkpoint",
        meta=CheckpointCommitted,
        retried=True,
    ),
    EventType(
        name="frame.committed",
        sentence="The frame's rows are worked off and its result is stored.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=FrameCommitted,
        retried=True,
    ),
    EventType(
        name="frame.abandoned",
        sentence="The frame's lease ran out and the frame is free again.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
    ),
    EventType(
        name="frame.attempt_failed",
        sentence="One attempt at a frame failed; another may follow.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        retried=True,
    ),
    EventType(
        name="frame.failed",
        sentence="The frame failed for good.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        retried=True,
    ),
    EventType(
        name="catalog.registered",
        sentence="A new version of a playbook was registered under its path.",
        aggregate="catalog",
        needs=("catalog_id", "payload_ref"),
        meta=CatalogRegistered,
    ),
    EventType(
        name="catalog.removed",
        sentence="A version was taken out of use; executions of it go on.",
        aggregate="catalog",
        needs=("catalog_id",),
    ),
    EventType(
        name="catalog.restored",
        sentence="A version that was taken out of use may be used again.",
        aggregate="catalog",
        needs=("catalog_id",),
    ),
    EventType(
        name="partition.archived",
        sentence="A partition of the ledger was archived to the payload store.",
        aggregate="retention",
        needs=("payload_ref",),
        meta=PartitionArchived,
        retried=True,
    ),
    EventType(
        name="archive.removed",
        sentence="An archived partition is no longer kept.",
        aggregate="retention",
        meta=ArchiveRemoved,
        retried=True,
    ),
    EventType(
        name="tenant.erased",
        sentence="The tenant's key was destroyed, so its payloads can no longer be read.",
        aggregate="tenant",
        retried=True,
    ),
    *ROW_TYPES,
    *CURATED_TYPES,
)
"""The catalogue, in the order a run meets it."""

BY_NAME: dict[str, EventType] = {kind.name: kind for kind in EVENT_TYPES}

ENDING: frozenset[str] = frozenset(kind.name for kind in EVENT_TYPES if kind.ends)
"""Types that end an execution."""


def event_type(name: str) -> EventType | None:
    """Look a type up; the user's own `business.` types are made on the spot."""
    found = BY_NAME.get(name)
    if found is None and name.startswith(OPEN_PREFIX) and len(name) > len(OPEN_PREFIX):
        found = EventType(name=name, sentence="A fact of the user's own business.", aggregate="business_object")
    return found
