"""What the tasks of a bulk replay are told and what they answer. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from noetl.kernel.projections.field_witness import Lost
from noetl.kernel.projections.folds.fold import FoldedRow, RowKey
from noetl.model.broken_stream import BrokenStream
from noetl.model.dataset import FileEntry
from noetl.model.stream import Scope
from noetl.spark.lake.storage import Lake

RowFields = tuple[tuple[str, ...], int, int, int, int, int, dict[str, Any]]
"""A folded row as it travels: its name, fold version, execution, shard, first and last position, and itself."""


class LakeFile(msgspec.Struct, frozen=True):
    """A file of the event lake, and the lowest and highest shard of which it has events."""

    entry: FileEntry
    """What its manifest says of it, but for the statistics."""
    low: int
    high: int


class ShardPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One shard's share of the work."""

    shard: int
    last: int | None
    """Up to which position to fold; None is where the shard's projections stand."""
    lake_last: int = 0
    """Up to which position the lake is read; what follows comes from the ledger."""
    archived_last: int = 0
    """Up to which position archives have a part of it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole bulk replay, as a driver is told."""

    scope: Scope
    parts: tuple[ShardPart, ...]
    code: bytes
    """The folds and upcasters, as `shipping.packed` wrote them."""
    files: tuple[LakeFile, ...] = ()
    projections: tuple[str, ...] = ()
    """Whose rows to return."""
    limit: int | None = None
    places: tuple[tuple[str, int], ...] | None = None
    """Return the rows of these buckets alone, without a limit."""
    sums: bool = False
    """Whether to sum rows by bucket."""
    stored: bool = False
    """Whether to sum the stored rows too."""
    stopped: tuple[BrokenStream, ...] = ()
    """Streams that stand still, and are folded up to there."""
    erased: bool = False
    """Whether an event says that the payloads of the tenant were erased."""


@dataclass(frozen=True)
class BulkWork:
    """What each task is told: the whole, of which it does one part."""

    asked: Asked
    reach: dict[str, Any] = field(repr=False)
    lake: Lake
    progress: tuple[str, int, str] | None
    """Where to tell how far it has come: host, port, and the word that proves who tells it."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a shard could not be folded."""

    code: str
    message: str
    hint: str | None = None
    details: dict[str, Any] = {}


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task found in its shard."""

    shard: int
    last: int
    """Up to which position was folded."""
    events: int = 0
    tallies: list[tuple[str, int, str]] = []
    rows: list[RowFields] = []
    left_off: dict[str, int] = {}
    expected: dict[str, Any] | None = None
    found: dict[str, Any] | None = None
    unsound: int = 0
    """Stored rows whose checksum is not that of their text."""
    claimed: bytes = b""
    """Digests, of eight bytes each, of the names of the rows that the user's folds touched."""
    broken: list[BrokenStream] = []
    """Streams with fields that cannot be read."""
    lost: list[Lost] = []
    """Fields that folds did not get."""
    failure: Failure | None = None


def row_fields(folded: FoldedRow) -> RowFields:
    """Lay a row out for its way."""
    return (
        tuple(folded.key),
        folded.version,
        folded.execution_id,
        folded.shard,
        folded.first_position,
        folded.last_position,
        folded.row,
    )


def folded_row(fields: RowFields) -> FoldedRow:
    """Read a row back."""
    key, version, execution_id, shard, first, last, row = fields
    return FoldedRow(RowKey(*key), version, execution_id, shard, first, last, row)
