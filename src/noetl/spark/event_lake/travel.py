"""Time travel by position: a mark goes in, the condition that holds for events up to it comes out.

It means the same in Spark and in `noetl query`, and does not depend on when the lake was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.model.mark import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def condition(mark: Mark) -> str:
    """Return the SQL that is true of events up to a mark."""
    cases = " ".join(f"WHEN {shard} THEN {position}" for shard, position in enumerate(mark.positions))
    return f"position <= CASE shard {cases} END"


def rows_upto(events: DataFrame, mark: Mark) -> DataFrame:
    """Return the events up to a mark."""
    return events.filter(condition(mark))
