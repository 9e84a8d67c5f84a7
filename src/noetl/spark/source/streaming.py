"""Reads the ledger as a stream: an offset is a mark, a batch is what stands between two of them.

Heads are read as committed and positions are in commit order, so a batch planned twice holds the same events, and no
event appears behind a mark that was passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from noetl.model.mark import Mark
from noetl.spark.source.batch import tasks
from noetl.spark.source.filters import Narrowed
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.planning import admitted, before, check_reached, head
from noetl.spark.source.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, str]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the options ask for, batch by batch."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target = options.upto

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query starts."""
        return _offset(self._options.after or Mark.zero())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many positions a batch may span."""
        return ReadMaxRows(self._options.batch_events)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take what stands now as the end of the query."""
        now = head(self._options)
        self._target = now if self._target is None else before(now, self._target)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return where the next batch ends."""
        begins, now = _mark(start), head(self._options)
        check_reached("the checkpoint of this query", begins, now)
        ends = now if self._target is None else before(now, self._target).merge(begins)
        if isinstance(limit, ReadMaxRows):
            return _offset(admitted(self._options.shards, begins, ends, limit.max_rows))
        return _offset(admitted(self._options.shards, begins, ends, sum(ends.positions)))

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return how far the ledger has come, for the query's progress."""
        return _offset(head(self._options))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return what the tasks of a batch read."""
        return list(tasks(self._options, Narrowed(), _mark(start), _mark(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the events of a task."""
        return Reading(self._options, columns=self._columns).batches(partition.value)


def _offset(mark: Mark) -> Offset:
    return {"mark": mark.token()}


def _mark(offset: Offset) -> Mark:
    return Mark.parse(offset["mark"])
