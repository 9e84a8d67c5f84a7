"""The event types of what is archived, kept whatever its age, and removed. Joined to the others by `catalogue`.

Pins, the policy and sweeps stand in one stream of the organization, `pins`, so that whoever removes something knows
every pin; what is removed of a dataset stands in the stream of its DAG, so that no switch of versions is missed.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType

PINS_STREAM: Final = "pins"
PinKind = Literal["dataset", "execution", "mark"]


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


class PinCreated(msgspec.Struct, frozen=True):
    """What is kept: a dataset at a mark, an execution, or all datasets at a mark."""

    pin_id: str
    kind: PinKind
    dataset_uuid: str | None = None
    execution_id: str | None = None
    mark: str | None = None
    note: str = ""
    until: str | None = None
    by: str = ""


class PinReleased(msgspec.Struct, frozen=True):
    """Which pin no longer holds."""

    pin_id: str
    by: str = ""


class PolicySet(msgspec.Struct, frozen=True):
    """Who decided."""

    by: str = ""


class Swept(msgspec.Struct, frozen=True):
    """What kind of thing was let go, how much of it, and up to which age where age decides."""

    kind: str
    items: int
    bytes: int = 0
    until: str | None = None


class GenerationLetGo(msgspec.Struct, frozen=True):
    """Which generation, why, and until when readers had it."""

    dataset_uuid: str
    dataset_version: str
    generation: str
    reason: str
    served_until: str | None = None


class GenerationTrimmed(msgspec.Struct, frozen=True):
    """Of which generation partitions lost earlier versions, and why."""

    dataset_uuid: str
    dataset_version: str
    reason: str


class TrimmedVersions(msgspec.Struct, frozen=True):
    """The versions by partition."""

    versions: list[tuple[str, int]]


ARCHIVE_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="partition.archived",
        sentence="A partition of the ledger was archived to the payload store.",
        aggregate="retention",
        needs=("payload_ref",),
        meta=PartitionArchived,
        retried=True,
        opens=("event_archive", "archive_payload"),
        changes=("event_archive",),
    ),
    EventType(
        name="archive.removed",
        sentence="An archived partition is no longer kept.",
        aggregate="retention",
        meta=ArchiveRemoved,
        retried=True,
        changes=("event_archive",),
        ends=("archive_payload",),
    ),
    EventType(
        name="tenant.erased",
        sentence="The tenant's key was destroyed, so its payloads can no longer be read.",
        aggregate="tenant",
        retried=True,
        observed=True,
    ),
)
"""What leaves the ledger or can no longer be read."""

PINS_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="pin.policy_set",
        sentence="How long an organization keeps what was decided.",
        aggregate="organization",
        meta=PolicySet,
        opens=("retention_policy",),
        changes=("retention_policy",),
    ),
    EventType(
        name="pin.created",
        sentence="Something was pinned, to be kept whatever its age.",
        aggregate="organization",
        meta=PinCreated,
        opens=("pin",),
    ),
    EventType(
        name="pin.released",
        sentence="A pin was taken away; what it kept may go.",
        aggregate="organization",
        meta=PinReleased,
        changes=("pin",),
    ),
    EventType(
        name="pin.swept",
        sentence="Something that nothing keeps any more was let go.",
        aggregate="organization",
        meta=Swept,
        opens=("sweep",),
        changes=("sweep",),
    ),
    EventType(
        name="generation.retired",
        sentence="A generation was taken from readers for good; only what pins and promises need of it stays.",
        aggregate="dag",
        meta=GenerationLetGo,
        opens=("retired_generation",),
        changes=("retired_generation",),
    ),
    EventType(
        name="generation.trimmed",
        sentence="Versions of a generation's partitions were let go.",
        aggregate="dag",
        meta=GenerationTrimmed,
        context=TrimmedVersions,
        opens=("trimmed_version",),
    ),
    EventType(
        name="generation.purged",
        sentence="All data of a generation were let go.",
        aggregate="dag",
        meta=GenerationLetGo,
        opens=("retired_generation",),
        changes=("retired_generation",),
    ),
)
"""In the order they are met."""
