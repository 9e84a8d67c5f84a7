"""The program that holds the lake against the ledger, range by range, and tells the first difference. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from noetl.model.dataset import Field
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.event_lake.checksums import Place, Sum, row_hash, sums, total
from noetl.spark.event_lake.definition import EVENT_COLUMNS, JOB
from noetl.spark.event_lake.desk import Desk
from noetl.spark.event_lake.travel import rows_upto
from noetl.spark.programs import Call
from noetl.spark.reading import files_frame
from noetl.spark.source import register
from noetl.spark.source.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
