"""Counts and checksums of events by shard and range of positions: the same over the ledger and over the lake.

A checksum is a sum over rows, so it does not depend on the order or the files that they come in.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

from noetl.spark.event_lake.definition import EVENT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HALF = 0xFFFFFFFF


class Place(NamedTuple):
    """A range of positions of one shard, by its number."""

    shard: int
    number: int


class Sum(NamedTuple):
    """What the events of a range come to."""

    rows: int
    low: int
    high: int

    def plus(self, other: Sum) -> Sum:
        """Return what both ranges come to together."""
        return Sum(self.rows + other.rows, self.low + other.low, self.high + other.high)

    @property
    def checksum(self) -> str:
        """The sum as it is shown and compared."""
        return f"{self.low + (self.high << 32):032x}"


NOTHING = Sum(0, 0, 0)


def row_hash() -> Column:
    """Return the hash of all fields of an event; a null counts, wherever it stands."""
    # Spark's own hash passes over nulls, so two rows whose values stand in different columns would be the same to it.
    nulls = reduce(
        lambda one, other: one + other,
        (
            F.when(F.col(name).isNull(), F.lit(1 << place)).otherwise(F.lit(0))
            for place, name in enumerate(EVENT_COLUMNS)
        ),
    )
    return F.xxhash64(*(F.col(name).cast(kind) for name, kind in EVENT_COLUMNS.items()), nulls.cast("bigint"))


def sums(events: DataFrame, positions: int) -> dict[Place, Sum]:
    """Return what each range of so many positions of each shard comes to."""
    number = F.floor((F.col("position") - 1) / F.lit(positions)).cast("bigint")
    hashed = events.select("shard", number.alias("number"), row_hash().alias("hash"))
    # In halves, so that no sum of fewer than two thousand million rows overflows.
    found = hashed.groupBy("shard", "number").agg(
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.col("hash").bitwiseAND(F.lit(_HALF))).alias("low"),
        F.sum(F.shiftrightunsigned("hash", 32)).alias("high"),
    )
    return {
        Place(row["shard"], row["number"]): Sum(row["rows"], row["low"], row["high"])
        for row in found.toArrow().to_pylist()
    }


def total(found: dict[Place, Sum], shard: int | None = None) -> Sum:
    """Return what all ranges come to, or those of one shard."""
    chosen = (one for place, one in found.items() if shard is None or place.shard == shard)
    return reduce(Sum.plus, chosen, NOTHING)
