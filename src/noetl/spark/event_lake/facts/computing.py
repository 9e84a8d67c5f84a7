"""Days of events go in, one DataFrame for each fact dataset comes out. Nothing is written, and no other view is seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Final

from noetl.spark.event_lake.facts.catalogue import FACTS
from noetl.spark.event_lake.facts.parsing import DAY_OF_EVENT, parsed_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE: Final = "noetl_facts_source"
_READ_AGAIN: Final = ("noetl_executions", "noetl_frames", "noetl_tasks", "noetl_attempts", "noetl_metrics")
"""Facts that others are made of."""
SETTINGS: Final = {
    # The events are laid out by execution once, and nearly all that follows stays where it is: plans must not be
    # changed underway, nor small sides be sent around, each of which is a Spark job of its own.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
}
"""What a session for facts is set to, besides the number of parts (`spark.sql.shuffle.partitions`)."""


def touched_days(events: DataFrame) -> list[date]:
    """Return the days whose facts these events change."""
    return sorted(row[0] for row in events.selectExpr(f"{DAY_OF_EVENT} AS day").distinct().collect())


@contextmanager
def facts_of(events: DataFrame, days: Collection[date]) -> Iterator[dict[str, DataFrame]]:
    """Give the facts of some days by their names, from events that hold those days whole; they last for the block.

    The events must be of a session with `SETTINGS` that is nobody else's: the views are made there.
    """
    session = events.sparkSession
    wanted = ", ".join(f"DATE '{day.isoformat()}'" for day in sorted(days))
    events.createOrReplaceTempView(_SOURCE)
    parsed = session.sql(f"SELECT * FROM ({parsed_events(_SOURCE)}) WHERE day IN ({wanted})")  # noqa: S608 - ours
    _kept(parsed.repartition("execution_id")).createOrReplaceTempView("e")
    made: dict[str, DataFrame] = {}
    try:
        for fact in FACTS:
            rows = session.sql(fact.select)
            made[fact.name] = _kept(rows) if fact.name in _READ_AGAIN else rows
            made[fact.name].createOrReplaceTempView(fact.name)
        yield made
    finally:
        for name in (_SOURCE, "e", *made):
            session.catalog.dropTempView(name)


def _kept(rows: DataFrame) -> DataFrame:
    """Return rows that are computed once, whose plan nobody has to look at again; Spark lets go of what nobody reads."""
    return rows.localCheckpoint(eager=False)
