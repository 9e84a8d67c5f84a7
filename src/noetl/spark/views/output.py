"""How the rows of a batch reach their sink: told to the worker, or written as files that the worker commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noetl.faults import reach
from noetl.model.task import TaskGrant
from noetl.spark.drivers.programs import Call
from noetl.spark.views.query import KEPT, KEY, VALUE, condition, rolled, shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOLD: Final = 5_000
"""Rows that are told at a time, so that no message grows without bound."""


class Output(Protocol):
    """What takes the rows of batches."""

    mode: str
    """Spark's word for which rows a batch has."""

    def apply(self, rows: DataFrame, batch: int, barrier: dict[str, Any]) -> None:
        """Have the rows of a batch applied with its barrier."""
        ...


class RowsOutput:
    """Rows told to the worker: those that changed or, for a rollup, the whole of the view each time."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._whole = call.arguments.get("rollup") is not None
        self.mode = "complete" if self._whole else "update"

    def apply(self, rows: DataFrame, batch: int, barrier: dict[str, Any]) -> None:
        """Tell the rows that a batch changed, and those that it takes from the view."""
        result = rolled(rows, self._call.arguments)
        told = shaped(result, self._call.arguments).toArrow()
        reach("view.after_rows")
        tell(self._call, told, batch, {**barrier, "columns": columns_of(result)}, whole=self._whole)


class DatasetOutput:
    """Files of a dataset: what a batch adds or, where rows are grouped, the whole of the view each time."""

    def __init__(self, session: SparkSession, call: Call, *, whole: bool) -> None:
        self.mode = "complete" if whole else "append"
        self._session = session
        self._call = call
        self._whole = whole

    def apply(self, rows: DataFrame, batch: int, barrier: dict[str, Any]) -> None:
        """Write a batch's rows for the attempt the worker begins, and have them committed."""
        kept = rolled(rows, self._call.arguments).where(condition(self._call.arguments))
        begun = self._call.ask({"what": "begin", **barrier})
        if begun.get("grant") is None:
            # Spark's state has to follow the batch even where its files are not wanted.
            kept.write.format("noop").mode("overwrite").save()
            return
        grant = msgspec.convert(begun["grant"], TaskGrant)
        writes = written(kept, grant, self._call)
        reach("view.after_rows")
        self._call.ask({"what": "commit", **barrier, "writes": writes, "whole": self._whole})


def written(rows: DataFrame, grant: TaskGrant, call: Call) -> list[dict[str, Any]]:
    """Write rows as files of an attempt and return what the worker commits."""
    from noetl.spark.lake.executor_rows import Place
    from noetl.spark.lake.writer import write_output

    place = Place(task_id=grant.lease.task_id, attempt=grant.lease.attempt, partition_key=grant.partition_key)
    return [msgspec.to_builtins(one) for one in write_output(rows, grant.targets[0], place, call.lake, types={})]


def tell(call: Call, told: Any, batch: int, barrier: dict[str, Any], *, whole: bool) -> None:
    """Tell rows in pieces, the last one with the barrier that makes them stand."""
    pieces = [told.slice(start, TOLD) for start in range(0, told.num_rows, TOLD)] or [told]
    for place, piece in enumerate(pieces):
        said: dict[str, Any] = {"what": "rows", "batch": batch, "first": place == 0, **_columns(piece)}
        if place == len(pieces) - 1:
            said |= {**barrier, "what": "barrier", "whole": whole}
        call.ask(said)


def columns_of(rows: DataFrame) -> list[list[str]]:
    """Return the columns of a result with their types, for sinks that make a table of them."""
    return [[one.name, one.dataType.simpleString()] for one in rows.schema]


def _columns(piece: Any) -> dict[str, Any]:
    return {
        "keys": piece.column(KEY).to_pylist(),
        "values": piece.column(VALUE).to_pylist(),
        "kept": piece.column(KEPT).to_pylist(),
    }
