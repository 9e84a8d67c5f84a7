"""The data source `noetl` as Spark knows it. Light to import: Spark looks it up in every program."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from noetl.errors import InputError
from noetl.spark.source.batch import BatchReader, FilteringReader
from noetl.spark.source.columns import EVENT_COLUMNS, SPARK_TYPES
from noetl.spark.source.options import SourceOptions
from noetl.spark.source.streaming import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
