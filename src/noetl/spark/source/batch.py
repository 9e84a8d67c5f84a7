"""Reads the ledger once, up to its heads at the time of planning: what a query asks goes in, tasks come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from noetl.model.mark import Mark
from noetl.spark.source.filters import Narrowed, narrowed
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.planning import Executions, Place, before, check_reached, grouped, head, ranges
from noetl.spark.source.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa


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
