"""The event types of invalidations and backfills of datasets. Joined to the others by `catalogue`.

Every row follows from the events of one stream in their order: `invalidation/<run>` or `backfill/<run>`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from noetl.model.event_type import EventType

InvalidationScope = Literal["partition", "row_range"]
InvalidationReason = Literal["correction", "reorg", "manual", "schema_change"]


class Invalidated(msgspec.Struct, frozen=True):
    """Which generation of which dataset has wrong rows, where, and who said so why."""

    dataset_uuid: str
    dataset_version: str
    scope: InvalidationScope
    reason: InvalidationReason
    requested_by: str
    partition_key: str | None = None
    note: str | None = None


class InvalidatedWork(msgspec.Struct, frozen=True):
    """How many tasks of which generations follow, and of a row range the bounds of its column."""

    dependents: dict[str, int] = {}
    row_filter: dict[str, dict[str, Any]] | None = None


class InvalidationProcessed(msgspec.Struct, frozen=True):
    """Which task of which generation is done."""

    generation: str
    task_id: str


class InvalidationClosed(msgspec.Struct, frozen=True):
    """Why nobody waits for its tasks any more."""

    because: str
    by: str


class BackfillRequested(msgspec.Struct, frozen=True):
    """What is built again, and how much of it may be under way; the context has the range as `selection`."""

    dag: str
    generation: str
    dataset_uuid: str
    dataset_version: str
    total: int
    max_in_flight: int
    requested_by: str


class BackfillQueued(msgspec.Struct, frozen=True):
    """Which of the partitions, by their place."""

    first: int
    count: int


class BackfillKeys(msgspec.Struct, frozen=True):
    """The partitions in their order, one on a line, without what all of them begin with."""

    prefix: str
    keys: str


class BackfillAdvanced(msgspec.Struct, frozen=True):
    """How many partitions have been given to tasks by now, and how many tasks that made."""

    made: int
    tasks: int


class BackfillChanged(msgspec.Struct, frozen=True):
    """Who changed it."""

    by: str


class BackfillFailed(msgspec.Struct, frozen=True):
    """How many of its tasks failed."""

    failed: int


_JOB: Final = ("node_name",)

CHANGES_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dataset.invalidated",
        sentence="Rows of a dataset were said to be wrong, and what they are made by, or into, is to run again.",
        aggregate="invalidation",
        meta=Invalidated,
        context=InvalidatedWork,
        opens=("data_invalidation",),
    ),
    EventType(
        name="invalidation.processed",
        sentence="A task that an invalidation asked for is done.",
        aggregate="invalidation",
        needs=_JOB,
        meta=InvalidationProcessed,
        changes=("data_invalidation",),
    ),
    EventType(
        name="invalidation.closed",
        sentence="An invalidation was closed without all of its tasks, and why.",
        aggregate="invalidation",
        meta=InvalidationClosed,
        changes=("data_invalidation",),
    ),
    EventType(
        name="backfill.requested",
        sentence="A range of partitions was asked to be built again; the payload names them.",
        aggregate="backfill",
        needs=("node_name", "payload_ref"),
        meta=BackfillRequested,
        opens=("backfill",),
    ),
    EventType(
        name="backfill.queued",
        sentence="Partitions of a backfill were queued.",
        aggregate="backfill",
        needs=_JOB,
        meta=BackfillQueued,
        context=BackfillKeys,
        opens=("backfill_partition",),
        changes=("backfill",),
    ),
    EventType(
        name="backfill.advanced",
        sentence="The next partitions of a backfill were given to tasks, in the same transaction.",
        aggregate="backfill",
        needs=_JOB,
        meta=BackfillAdvanced,
        changes=("backfill",),
    ),
    EventType(
        name="backfill.paused",
        sentence="A backfill was told to give out no further partitions for a while.",
        aggregate="backfill",
        needs=_JOB,
        meta=BackfillChanged,
        changes=("backfill",),
    ),
    EventType(
        name="backfill.resumed",
        sentence="A backfill that was paused was told to go on.",
        aggregate="backfill",
        needs=_JOB,
        meta=BackfillChanged,
        changes=("backfill",),
    ),
    EventType(
        name="backfill.cancelled",
        sentence="A backfill was given up, and why.",
        aggregate="backfill",
        needs=_JOB,
        meta=BackfillChanged,
        changes=("backfill",),
        ends=("backfill_partition",),
    ),
    EventType(
        name="backfill.completed",
        sentence="All partitions of a backfill were built, and what follows from them.",
        aggregate="backfill",
        needs=_JOB,
        changes=("backfill",),
        ends=("backfill_partition",),
    ),
    EventType(
        name="backfill.failed",
        sentence="A backfill has nothing left to do, and some of its tasks failed.",
        aggregate="backfill",
        needs=_JOB,
        meta=BackfillFailed,
        changes=("backfill",),
        ends=("backfill_partition",),
    ),
)
"""In the order they are met."""
