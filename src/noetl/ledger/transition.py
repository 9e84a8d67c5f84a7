"""A change that stands or falls as a whole: the leases it relies on and the events that say what happened.

The rows of open work (`noetl.command`, `noetl.frame`, ...) follow from the events, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from noetl.model.catalogue import ENDING
from noetl.model.event import Draft
from noetl.model.stream import Stream

WORK_TYPES: Final = ENDING | {
    "command.issued",
    "command.claimed",
    "command.abandoned",
    "command.attempt_failed",
    "command.completed",
    "command.failed",
    "frame.dispatched",
    "frame.abandoned",
    "frame.attempt_failed",
    "frame.checkpointed",
    "frame.committed",
    "frame.failed",
    "loop.shard.enqueued",
    "loop.shard.abandoned",
    "loop.shard.attempt_failed",
    "loop.shard.done",
    "loop.shard.failed",
    "stage.opened",
    "stage.closed",
    "execution.requested",
}
"""Types whose events change rows of open work."""

FENCE_MODES: Final = {"held": 1, "expired": 2, "free": 3}


class Fence(msgspec.Struct, frozen=True):
    """A lease the change relies on: held by this attempt and token and lasting, run out, or free."""

    table: Literal["command", "frame"]
    execution_id: int
    id: str
    attempt: int
    token: str | None = None
    mode: Literal["held", "expired", "free"] = "held"


class Append(NamedTuple):
    """Events for the end of one stream."""

    stream: Stream
    drafts: Sequence[Draft]
    expected_version: int | None = None


class Transition(msgspec.Struct, frozen=True):
    """All of it, or nothing. No two appends go to the same stream."""

    appends: tuple[Append, ...]
    fences: tuple[Fence, ...] = ()
