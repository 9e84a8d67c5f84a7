"""The event types of a generation's columns, of its partitions and of where its columns come from. Joined to the others by
`catalogue`.

Every row follows from the events of one stream in their order: `dataset/<generation>` or `partition/<id>`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noetl.model.event_type import EventType
from noetl.model.lineage import How


class SchemaSet(msgspec.Struct, frozen=True):
    """Whose schema it is, and whether it is the first."""

    dataset_uuid: str
    dataset_version: str
    schema_hash: str
    change: Literal["first", "evolved"]


class PartitionCommitted(msgspec.Struct, frozen=True):
    """What a reader sees of the partition from now on, and how much of it this commit brought."""

    dataset_uuid: str
    dataset_version: str
    partition_key: str
    version: int
    task_id: str
    attempt: int
    rows: int
    bytes: int
    files: int
    schema_hash: str
    content_digest: str
    update: Literal["append", "replace"]
    rows_added: int | None = None
    bytes_added: int | None = None


class PartitionDropped(msgspec.Struct, frozen=True):
    """Which partition is gone."""

    dataset_uuid: str
    dataset_version: str
    partition_key: str
    version: int
    task_id: str


class LineageSet(msgspec.Struct, frozen=True):
    """Whose lineage it is, and who said so."""

    dataset_uuid: str
    dataset_version: str
    lineage_hash: str
    how: How
    version: int
    """Counted from 1 within the generation."""


DATASET_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dataset.schema_set",
        sentence="The columns of a generation were fixed or changed.",
        aggregate="dataset",
        meta=SchemaSet,
        opens=("dataset_schema",),
    ),
    EventType(
        name="partition.committed",
        sentence="The files of a partition were made visible.",
        aggregate="partition",
        needs=("node_name", "payload_ref"),
        meta=PartitionCommitted,
        opens=("partition_version", "outbox"),
        changes=("partition_version",),
    ),
    EventType(
        name="partition.dropped",
        sentence="A partition was taken out of its generation.",
        aggregate="partition",
        meta=PartitionDropped,
        opens=("partition_version", "outbox"),
        changes=("partition_version",),
    ),
)
"""In the order a generation meets them."""

LINEAGE_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dataset.lineage_set",
        sentence="It was recorded which columns of a generation come from which.",
        aggregate="dataset",
        needs=("node_name",),
        meta=LineageSet,
        opens=("dataset_lineage", "column_lineage"),
    ),
)
"""What is said about a generation beside its data."""
