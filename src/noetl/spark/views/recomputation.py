"""The program that computes a view in one go at a mark, with the same query, so that its rows can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.model.event import parse_time
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.drivers.programs import Call
from noetl.spark.lake.writer import own_session_settings
from noetl.spark.source import register
from noetl.spark.source.options import source_options
from noetl.spark.views.dataset_changes import over_dataset, stored_rows
from noetl.spark.views.output import TOLD
from noetl.spark.views.query import KEPT, KEY, VALUE, result_of, rolled, schema_of, shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRAM: Final = "noetl.spark.views.recomputation:recompute"


def recompute(session: SparkSession, call: Call) -> dict[str, Any]:
    """Compute the view at a mark and tell its rows in pieces; return how many there are."""
    asked = call.arguments
    for name, value in own_session_settings().items():
        session.conf.set(name, value)
    if asked.get("dataset") is not None:
        result = over_dataset(session, call, asked["pinned"])
    else:
        result = result_of(session, _events(session, call), asked)
    result = rolled(result, asked)
    counted = _tell(call, shaped(result, asked), stored=False)
    if asked.get("stored") is not None:
        found = stored_rows(session, call, asked["stored"])
        _tell(call, shaped(found.select(*result.columns), {**asked, "keep": None}), stored=True)
    return {"rows": counted}


def _tell(call: Call, rows: DataFrame, *, stored: bool) -> int:
    """Tell rows in pieces; return how many there are."""
    found = rows.where(rows[KEPT]).drop(KEPT).toArrow()
    for start in range(0, found.num_rows, TOLD):
        piece = found.slice(start, TOLD)
        told = {"keys": piece.column(KEY).to_pylist(), "values": piece.column(VALUE).to_pylist()}
        call.ask({**told, "stored": stored})
    return int(found.num_rows)


def _events(session: SparkSession, call: Call) -> DataFrame:
    asked = call.arguments
    scope = Scope(asked["tenant"], asked["organization"])
    register(session)
    options = source_options(scope, call.reach, **asked["source"], upto=asked["mark"])
    read = asked.get("columns")
    columns = schema_of(read if read is None else [*read, "shard", "position", asked["time_column"]])
    events = session.read.format("noetl").schema(columns).options(**options).load()
    return _in_time(session, events, asked["late"], asked["time_column"])


def _in_time(session: SparkSession, events: DataFrame, late: list[dict[str, Any]], column: str) -> DataFrame:
    """Leave out what was late when its batch was read: the same rows, whatever is known now."""
    from pyspark.sql import functions as F  # noqa: N812

    if not late:
        return events
    ranges = [
        (shard, first, last, parse_time(one["watermark"]))
        for one in late
        for shard, (first, last) in enumerate(
            zip(_positions(one["since"], one["mark"]), Mark.parse(one["mark"]).positions, strict=True)
        )
        if last > first
    ]
    known = session.createDataFrame(ranges, "on_shard int, first long, last long, watermark timestamp")
    return events.join(
        F.broadcast(known),
        (events["shard"] == known["on_shard"])
        & (events["position"] > known["first"])
        & (events["position"] <= known["last"])
        & (events[column] <= known["watermark"]),
        "left_anti",
    )


def _positions(since: str | None, mark: str) -> tuple[int, ...]:
    return Mark.parse(since).positions if since else Mark.zero(len(Mark.parse(mark).positions)).positions
