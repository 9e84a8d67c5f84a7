"""How late slots of schedules begin: the events of their first attempts go in, one row for each slot comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def late_slots(events: DataFrame) -> DataFrame:
    """Return for each slot when it was planned, when it was first claimed, and the seconds between."""
    from pyspark.sql import functions as F  # noqa: N812

    said = events.select(
        F.element_at(F.split("stream_id", "/"), -1).alias("schedule"),
        F.get_json_object("meta", "$.plan_time").alias("plan_time"),
        "ingest_time",
    )
    begun = said.groupBy("schedule", "plan_time").agg(F.min("ingest_time").alias("begun_at"))
    planned = F.to_timestamp("plan_time")
    return begun.withColumn("seconds_late", F.unix_timestamp("begun_at") - F.unix_timestamp(planned))
