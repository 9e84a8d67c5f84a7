"""Events become rows of the lake, and files of an attempt by tenant, organization and day. Nothing is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.model.dataset import ALL, FileEntry
from noetl.model.stream import Scope
from noetl.model.task import PartitionWrite
from noetl.spark.event_lake.definition import kept_statistics, partition_of
from noetl.spark.event_lake.worker_requests import Attempt
from noetl.spark.lake.storage import Lake
from noetl.spark.lake.writer import own_session_settings, write_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from noetl.model.mark import Mark
from noetl.spark.event_lake.definition import COLUMNS
from noetl.spark.source.upcasters import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


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


def lake_rows(events: DataFrame, task_id: str, mark: Mark, first_versions: DataFrame | None) -> DataFrame:
    """Return the rows of one batch; `first_versions` tells what schema version events had before they were upcast."""
    upcast_from = F.lit(None)
    if first_versions is not None:
        events = events.join(F.broadcast(first_versions), ["shard", "position"], "left")
        upcast_from = F.col("first_version")
    given = {
        "batch": F.lit(task_id),
        "source_mark": F.lit(mark.token()),
        "upcast_from": upcast_from,
        "written_at": F.lit(datetime.now(UTC)),
        "tenant": F.col("tenant_id"),
        "organization": F.col("organization_id"),
        "day": F.to_date("ingest_time"),
    }
    return events.select(
        *((given[name] if name in given else F.col(name)).cast(kind).alias(name) for name, kind in COLUMNS.items())
    )


def first_versions(session: SparkSession, options: Mapping[str, str], after: Mark, upto: Mark) -> DataFrame | None:
    """Return the schema versions that events in old schemas have in the ledger; None if there are no upcasters."""
    old = loaded(filter(None, options["upcasters"].split(","))).old
    if not old:
        return None
    raw = {**options, "upcasters": "", "after": after.token(), "upto": upto.token()}
    found = session.read.format("noetl").options(**raw).load()
    named = found.filter(F.col("schema_name").isin(sorted({name for name, _ in old})))
    is_old = F.struct("schema_name", "schema_version").isin([F.struct(F.lit(one), F.lit(two)) for one, two in old])
    return named.filter(is_old).select("shard", "position", F.col("schema_version").alias("first_version"))
