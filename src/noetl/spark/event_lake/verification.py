"""The program that holds the lake against the ledger, range by range, and tells the first difference. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from noetl.model.dataset import Field
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.drivers.programs import Call
from noetl.spark.event_lake.definition import EVENT_COLUMNS, JOB, rows_upto
from noetl.spark.event_lake.worker_requests import Desk
from noetl.spark.lake.reader import files_frame
from noetl.spark.source import register
from noetl.spark.source.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_SHOWN: Final = 200


class VerifyArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the program is told."""

    tenant: str
    organization: str
    upto: str
    """Up to which mark both are held against each other."""
    positions: int
    """How many positions one range has."""
    partition_events: int

    @property
    def scope(self) -> Scope:
        """Whose lake it is."""
        return Scope(self.tenant, self.organization)


def verify(session: SparkSession, call: Call) -> dict[str, Any]:
    """Compare counts and checksums per shard and range, and find the first event that differs."""
    told = msgspec.convert(call.arguments, VerifyArguments)
    register(session)
    stored = Desk(call.ask).stored(JOB)
    columns = [Field(name, kind) for name, kind in EVENT_COLUMNS.items()]
    lake = rows_upto(files_frame(session, columns, stored.entries(), call.lake), Mark.parse(told.upto))
    options = source_options(told.scope, call.reach, upto=told.upto, partition_events=str(told.partition_events))
    ledger = session.read.format("noetl").options(**options).load()
    of_ledger, of_lake = sums(ledger, told.positions), sums(lake, told.positions)
    places = sorted(of_ledger.keys() | of_lake.keys())
    differing = [place for place in places if of_ledger.get(place) != of_lake.get(place)]
    return {
        "ranges": len(places),
        "differing": len(differing),
        "ledger": _told(of_ledger),
        "lake": _told(of_lake),
        "shards": [
            {"shard": shard, "ledger": _shown(total(of_ledger, shard)), "lake": _shown(total(of_lake, shard))}
            for shard in sorted({place.shard for place in places})
        ],
        "difference": _first_difference(ledger, lake, differing[0], told.positions) if differing else None,
    }


def _told(found: dict[Place, Sum]) -> dict[str, Any]:
    return _shown(total(found))


def _shown(one: Sum) -> dict[str, Any]:
    return {"rows": one.rows, "checksum": one.checksum}


def _first_difference(ledger: DataFrame, lake: DataFrame, place: Place, positions: int) -> dict[str, Any]:
    first = place.number * positions + 1
    inside = (F.col("shard") == place.shard) & F.col("position").between(first, first + positions - 1)
    here, there = (_hashes(side.filter(inside)) for side in (ledger, lake))
    position = min(one for one in here.keys() | there.keys() if here.get(one) != there.get(one))
    found: dict[str, Any] = {"shard": place.shard, "position": position, "first": first, "last": first + positions - 1}
    if position not in there:
        return found | {"what": "the lake lacks an event that the ledger has"}
    if position not in here:
        return found | {"what": "the lake has an event that the ledger has not"}
    if len(there[position]) != len(here[position]):
        return found | {"what": f"the lake has the event {len(there[position])} times"}
    exact = (F.col("shard") == place.shard) & (F.col("position") == position)
    one, other = (side.filter(exact).select(*EVENT_COLUMNS).toArrow().to_pylist()[0] for side in (ledger, lake))
    column = next(name for name in EVENT_COLUMNS if one[name] != other[name])
    return found | {
        "what": f"{column} differs",
        "column": column,
        "ledger": str(one[column])[:_SHOWN],
        "lake": str(other[column])[:_SHOWN],
    }


def _hashes(events: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in events.select("position", row_hash().alias("hash")).toArrow().to_pylist():
        found.setdefault(row["position"], []).append(row["hash"])
    return {position: sorted(hashes) for position, hashes in found.items()}


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
