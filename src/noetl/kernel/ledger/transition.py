"""A change that stands or falls as a whole: the leases it relies on and the events that say what happened.

The rows of open work (`noetl.command`, `noetl.frame`, ...) and of pipelines (`noetl.task`, `noetl.partition_version`,
...) follow from the events, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from noetl.model.catalogue.rows import types_with_rows
from noetl.model.event import Draft
from noetl.model.stream import Stream

WORK_TYPES: Final = frozenset(types_with_rows())
"""Types whose events change rows of open work, of pipelines, of people or of what is around them."""

FENCE_MODES: Final = {"held": 1, "expired": 2, "free": 3, "room": 4, "open": 5, "ended": 6}


class Fence(msgspec.Struct, frozen=True):
    """What the change relies on, locked until it is written.

    A lease is held by this attempt and token and lasting, has run out, or is free. A task, whose row stays, may also be
    relied on as still open or as ended, whatever its attempt. A job has `room` while fewer than `attempt` tasks of its
    generation run; each such fence stands for one more that is claimed. Tasks and jobs have `execution_id` 0.
    """

    table: Literal["command", "frame", "task", "job"]
    execution_id: int
    id: str
    attempt: int
    token: str | None = None
    mode: Literal["held", "expired", "free", "room", "open", "ended"] = "held"


class Append(NamedTuple):
    """Events for the end of one stream."""

    stream: Stream
    drafts: Sequence[Draft]
    expected_version: int | None = None


class Transition(msgspec.Struct, frozen=True):
    """All of it, or nothing. No two appends go to the same stream."""

    appends: tuple[Append, ...]
    fences: tuple[Fence, ...] = ()
