"""The data source `noetl` as Spark knows it, and its readers: once up to the heads, or as a stream between marks."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from noetl.errors import InputError
from noetl.spark.source.columns import EVENT_COLUMNS, SPARK_TYPES
from noetl.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from noetl.model.mark import Mark
from noetl.spark.source.batches import Reading
from noetl.spark.source.filters import Narrowed, narrowed
from noetl.spark.source.ranges import Executions, Place, before, check_reached, grouped, head, ranges

if TYPE_CHECKING:
    import pyarrow as pa
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from noetl.spark.source.ranges import admitted

if TYPE_CHECKING:
    import pyarrow as pa


_ASKS_FOR_FILTERS: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class LedgerSource(DataSource):
    """Events of the ledger, read once or as a stream."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(…)`."""
        return "noetl"

    def schema(self) -> str:
        """Return the columns of an event."""
        return EVENT_COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads the ledger once."""
        # Spark refuses a reader that takes filters wherever a session has that switched off, as it is by itself. And it
        # keeps the filters it was told last for every use of a loaded frame, so a frame used twice would lose rows.
        kind = FilteringReader if self._parsed.push_filters and _asks_for_filters() else BatchReader
        return kind(self._parsed, _columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Return what reads the ledger as a stream."""
        return StreamReader(self._parsed, _columns(schema))


def _asks_for_filters() -> bool:
    """Tell whether this process is the one in which Spark asks sources which filters they take."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _ASKS_FOR_FILTERS in sys.modules or getattr(spec, "name", None) == _ASKS_FOR_FILTERS


def _columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns a query has declared, which may be fewer than an event has."""
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema.fields
        if field.dataType.simpleString() != SPARK_TYPES.get(field.name)
    ]
    if wrong:
        raise InputError(f"events have no columns {', '.join(wrong)}; their columns are {EVENT_COLUMNS}")
    return tuple(schema.fieldNames())


class Places(InputPartition):
    """What one task reads."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(tuple(places))


class BatchReader(DataSourceReader):
    """Reads what the options ask for."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrowed = Narrowed()

    def partitions(self) -> list[InputPartition]:
        """Return what tasks read."""
        options = self._options
        end = head(options)
        if options.upto is not None:
            check_reached("the mark of the option upto", options.upto, end)
            end = before(end, options.upto)
        start = options.after or Mark.zero(len(end.positions))
        check_reached("the mark of the option after", start, end if options.upto is None else start.merge(end))
        return list(tasks(options, self._narrowed, start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the events of a task."""
        if partition.value is None:  # how Spark says that nothing was planned
            return iter(())
        reading = Reading(self._options, self._narrowed.conditions, self._columns)
        return reading.batches(partition.value)


class FilteringReader(BatchReader):
    """Reads what the options ask for, and leaves out what the filters of the query refuse."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters in; Spark is to apply them again, see `filters`."""
        self._narrowed = narrowed(filters)
        return filters


def tasks(options: SourceOptions, narrow: Narrowed, start: Mark, end: Mark) -> Iterator[Places]:
    """Give what each task reads between two marks."""
    shards = [shard for shard in options.shards if shard in narrow.shards]
    found = ranges(shards, start, end, narrow.first, narrow.last)
    executions = narrow.executions
    if options.execution is not None:
        executions = frozenset({options.execution}) & (executions or {options.execution})
    if executions is None:
        yield from map(Places, grouped(found, options.partition_events))
    elif executions and found:
        # Asked for by their index; a shard that has nothing to read gets bounds that nothing lies between.
        begins, ends = list(end.positions), list(end.positions)
        for one in found:
            begins[one.shard], ends[one.shard] = one.first - 1, one.last
        yield Places([Executions(tuple(sorted(executions)), Mark(begins), Mark(ends))])


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
