"""The event types of loops without frames and of fan-outs. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import Attempt, EventType


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


_SHARD_IDS: Final = ("node_name", "loop_id", "shard_id")

LOOP_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="loop.started",
        sentence="A loop step was entered and its collection is fixed.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        meta=LoopStarted,
        projections=("execution", "loop"),
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
        projections=("execution", "loop"),
    ),
    EventType(
        name="loop.fanout.started",
        sentence="A fan-out was entered and its shards are fixed.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        meta=FanoutStarted,
        projections=("execution", "fanout"),
    ),
    EventType(
        name="loop.shard.enqueued",
        sentence="One shard of a fan-out was made available.",
        aggregate="loop",
        needs=("node_name", "loop_id", "shard_id", "current_index"),
        opens=("frame",),
        changes=("frame", "stage"),
        attempt="begun",
    ),
    EventType(
        name="loop.shard.done",
        sentence="One shard of a fan-out ended well.",
        aggregate="loop",
        needs=_SHARD_IDS,
        retried=True,
        changes=("stage",),
        ends=("frame",),
        projections=("execution", "fanout"),
        attempt="completed",
    ),
    EventType(
        name="loop.shard.failed",
        sentence="One shard of a fan-out failed.",
        aggregate="loop",
        needs=_SHARD_IDS,
        retried=True,
        changes=("stage",),
        ends=("frame",),
        projections=("execution", "fanout"),
        attempt="failed",
    ),
    EventType(
        name="loop.shard.abandoned",
        sentence="The lease of a fan-out's shard ran out and the shard is free again.",
        aggregate="loop",
        needs=_SHARD_IDS,
        meta=Attempt,
        changes=("frame",),
        attempt="abandoned",
    ),
    EventType(
        name="loop.shard.attempt_failed",
        sentence="One attempt at a shard failed; another may follow.",
        aggregate="loop",
        needs=_SHARD_IDS,
        meta=Attempt,
        retried=True,
        changes=("frame",),
        attempt="attempt_failed",
    ),
    EventType(
        name="loop.fanin.completed",
        sentence="Every shard of the fan-out has ended.",
        aggregate="loop",
        needs=("node_name", "loop_id"),
        result=FaninCompleted,
        once_per="loop_id",
        projections=("execution", "fanout"),
    ),
)
"""In the order a loop meets them."""
