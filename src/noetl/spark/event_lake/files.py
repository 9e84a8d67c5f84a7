"""Rows of the lake become files of an attempt, filed by tenant, organization and day. Nothing is visible before a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.model.dataset import ALL, FileEntry
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite
from noetl.spark.event_lake.definition import kept_statistics, partition_of
from noetl.spark.event_lake.desk import Attempt
from noetl.spark.lake import Lake
from noetl.spark.writing import own_session_settings, write_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SETTINGS: Final = {**own_session_settings(), "parquet.block.row.count.limit": "16384"}
"""What sessions that write the lake are set to: in small groups of rows, those of other shards are passed over unread."""


def written(rows: DataFrame, scope: Scope, attempt: Attempt, lake: Lake, day: str | None) -> list[PartitionWrite]:
    """Write rows, and return what was written of each day.

    Where all are of one day they go straight into its partition, without being moved between executors first; the
    statistics of the files prove that they are, and otherwise they are split by day.
    """
    writes: tuple[PartitionWrite, ...] | None = None
    if day is not None:
        key = partition_of(scope, day)
        found = write_output(rows, attempt.target, attempt.place(key), lake, types={})
        writes = found if all(_is_of(day, entry) for write in found for entry in write.files) else None
    if writes is None:
        writes = write_output(rows, attempt.target, attempt.place(ALL), lake, types={})
    return [with_few_statistics(write) for write in writes if write.files]


def _is_of(day: str, entry: FileEntry) -> bool:
    stats = entry.stats.get("day", {})
    return bool(stats.get("min") == stats.get("max") == day)


def with_few_statistics(write: PartitionWrite) -> PartitionWrite:
    """Return a write whose manifest stays small."""
    files = (msgspec.structs.replace(entry, stats=kept_statistics(entry.stats)) for entry in write.files)
    return msgspec.structs.replace(write, files=tuple(files))
