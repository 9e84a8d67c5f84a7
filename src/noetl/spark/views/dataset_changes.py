"""Views of a dataset: a change of what the dataset is starts a batch, which computes the view anew at the batch's mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.faults import reach
from noetl.model.dataset import Field, FileEntry
from noetl.spark.drivers.programs import Call
from noetl.spark.lake.reader import files_frame
from noetl.spark.views.output import columns_of, tell
from noetl.spark.views.query import result_of, rolled, shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGING: Final = ("partition.committed", "partition.dropped", "dag.activated", "dag.rolled_back", "generation.*")
"""The events by which a published dataset changes."""


class DatasetChanges:
    """Computes a view anew for each batch in which its dataset changed."""

    mode = "append"

    def __init__(self, session: SparkSession, call: Call) -> None:
        self._session = session
        self._call = call

    def apply(self, rows: DataFrame, batch: int, barrier: dict[str, Any]) -> None:
        """Compute the view at the batch's mark; the stream's own rows say only when."""
        del rows
        pinned = self._call.ask({"what": "pin", **barrier})
        result = rolled(over_dataset(self._session, self._call, pinned), self._call.arguments)
        told = shaped(result, self._call.arguments).toArrow()
        reach("view.after_rows")
        tell(self._call, told, batch, {**barrier, "columns": columns_of(result)}, whole=True)


def over_dataset(session: SparkSession, call: Call, pinned: dict[str, Any]) -> DataFrame:
    """Return the result of a view's query over the files of its dataset."""
    return result_of(session, stored_rows(session, call, pinned), call.arguments)


def stored_rows(session: SparkSession, call: Call, pinned: dict[str, Any]) -> DataFrame:
    """Return the rows of files of a dataset."""
    columns = msgspec.convert(pinned["columns"], tuple[Field, ...])
    files = msgspec.convert(pinned["files"], tuple[FileEntry, ...])
    return files_frame(session, columns, [(one, 0) for one in files], call.lake)
