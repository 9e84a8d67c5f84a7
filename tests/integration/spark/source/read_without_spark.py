"""The readers of the data source as Spark drives them, in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from noetl.kernel.ledger.rows import to_events
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.spark.source.columns import NAMES
from noetl.spark.source.data_source import FilteringReader, StreamReader
from noetl.spark.source.options import SourceOptions

CARE, BOOKS = Scope("acme", "care"), Scope("zeta", "books")
MINT = SnowflakeGenerator(31, lambda: time.time_ns() // 1_000_000).mint


def planned(given: dict[str, str], filters: Sequence[Filter] = ()) -> tuple[FilteringReader, list[InputPartition]]:
    """Return a reader that was asked about filters, and what its tasks read."""
    reader = FilteringReader(SourceOptions.parse(given), NAMES)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark is to apply every filter again"
    return reader, reader.partitions()


def read(given: dict[str, str], filters: Sequence[Filter] = ()) -> list[Event]:
    """Return the events that all tasks of a reader give."""
    reader, tasks = planned(given, filters)
    return [event for task in tasks for batch in reader.read(task) for event in events_in(batch)]


def events_in(batch: Any) -> list[Event]:
    """Return a batch as events."""
    return to_events(zip(*(column.to_pylist() for column in batch.columns), strict=True))


class Query:
    """A streaming query: takes one batch after another, and starts from its last offset when it is made anew."""

    def __init__(self, given: dict[str, str], offset: dict[str, str] | None = None) -> None:
        self._reader = StreamReader(SourceOptions.parse(given), NAMES)
        self.offset = self._reader.initialOffset() if offset is None else offset

    def prepare_to_end(self) -> None:
        """Read no further than the ledger is now."""
        self._reader.prepareForTriggerAvailableNow()

    def batch(self, limit: ReadLimit | None = None) -> list[Event]:
        """Read the next batch."""
        end = self._reader.latestOffset(self.offset, limit or self._reader.getDefaultReadLimit())
        events = self.between(self.offset, end)
        self.offset = end
        return events

    def between(self, start: dict[str, str], end: dict[str, str]) -> list[Event]:
        """Read the batch between two offsets."""
        tasks = self._reader.partitions(start, end)
        return [event for task in tasks for batch in self._reader.read(task) for event in events_in(batch)]
