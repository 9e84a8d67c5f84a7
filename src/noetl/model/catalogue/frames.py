"""The event types of stages and their frames, and of what projections cover of them. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import Attempt, EventType


class CheckpointCommitted(msgspec.Struct, frozen=True):
    """Up to where which shard was projected, and by which barrier."""

    shard: int
    epoch: int
    position: int


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


_FRAME_IDS: Final = ("stage_id", "frame_id")

FRAME_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="stage.opened",
        sentence="A loop, fan-out or reduce step was opened for frames.",
        aggregate="stage",
        needs=("node_name", "stage_id"),
        meta=StageOpened,
        opens=("stage",),
        projections=("stage",),
    ),
    EventType(
        name="stage.closed",
        sentence="All frames of the stage have ended.",
        aggregate="stage",
        needs=("node_name", "stage_id", "status"),
        ends=("stage", "frame"),
        overrules_holders=True,
        projections=("stage",),
    ),
    EventType(
        name="frame.dispatched",
        sentence="A worker took a lease on a window of rows, named before work starts.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=FrameDispatched,
        opens=("frame",),
        changes=("frame", "stage"),
        projections=("stage", "frame"),
        attempt="begun",
    ),
    EventType(
        name="frame.checkpointed",
        sentence="A worker recorded how far it got in its frame.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        retried=True,
        changes=("frame",),
        keeps_lease=True,
        projections=("frame",),
    ),
    EventType(
        name="checkpoint.committed",
        sentence="Projections cover what was told of the execution up to a position.",
        aggregate="checkpoint",
        meta=CheckpointCommitted,
        retried=True,
        observed=True,
    ),
    EventType(
        name="frame.committed",
        sentence="The frame's rows are worked off and its result is stored.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=FrameCommitted,
        retried=True,
        changes=("stage",),
        ends=("frame",),
        projections=("execution", "stage", "frame", "loop"),
        attempt="completed",
    ),
    EventType(
        name="frame.abandoned",
        sentence="The frame's lease ran out and the frame is free again.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        changes=("frame",),
        projections=("frame",),
        attempt="abandoned",
    ),
    EventType(
        name="frame.attempt_failed",
        sentence="One attempt at a frame failed; another may follow.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        retried=True,
        changes=("frame",),
        projections=("frame",),
        attempt="attempt_failed",
    ),
    EventType(
        name="frame.failed",
        sentence="The frame failed for good.",
        aggregate="frame",
        needs=_FRAME_IDS,
        meta=Attempt,
        retried=True,
        changes=("stage",),
        ends=("frame",),
        projections=("execution", "stage", "frame", "loop"),
        attempt="failed",
    ),
)
"""In the order a stage meets them."""
