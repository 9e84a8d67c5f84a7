"""Events go in, rows of the lake come out: the same fields, with where they come from and where they are filed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from noetl.model.mark import Mark
from noetl.spark.event_lake.definition import COLUMNS
from noetl.spark.source.upcasting import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


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
