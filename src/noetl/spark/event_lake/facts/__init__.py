"""Facts: events of the lake go in, tables for people who count, audit and bill come out. All of it follows from events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from noetl.model.stream import Scope
    from noetl.spark.drivers.programs import Call


def refresh(session: SparkSession, call: Call, scope: Scope, days: Sequence[str]) -> dict[str, int]:
    """Bring all facts up to where the lake is; `days` are days of the lake known to have new events.

    Returns how many rows were written of each dataset.
    """
    # Only a driver has Spark; whoever deploys the datasets imports this package, too.
    from noetl.spark.event_lake.facts.refresh import Refreshing

    return Refreshing.of(session, call, scope).run(days)
