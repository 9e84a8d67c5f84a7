"""The ledger as a stream without what comes too late: events at or before the watermark that is in force for their batch.

Spark wrote the watermark ahead with the batch's range, so a batch that is read again leaves out the same events; and
since nothing late reaches Spark, it drops nothing by rules of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from noetl.errors import Corrupt, InputError
from noetl.spark.source.batch import Places
from noetl.spark.source.source import LedgerSource
from noetl.spark.source.streaming import StreamReader
from noetl.spark.views.checkpoint import read_offsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

LATE_SOURCE: Final = "noetl_in_time"
_CHECKPOINT: Final = "late_checkpoint"
_COLUMN: Final = "late_column"


def register_late(session: SparkSession) -> None:
    """Make the source known in a session."""
    session.dataSource.register(InTimeSource)


def late_options(checkpoint: str, column: str) -> dict[str, str]:
    """Return what the source is told besides the options of the ledger's own."""
    if "://" in checkpoint and not checkpoint.startswith("file:"):
        raise InputError(
            f"a view with event_time keeps its checkpoint in a directory, and {checkpoint} is none",
            hint="name a directory that driver and executors share",
        )
    return {_CHECKPOINT: checkpoint.removeprefix("file://").removeprefix("file:"), _COLUMN: column}


class InTimeSource(LedgerSource):
    """Events of the ledger that come in time."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        own = dict(options.items())
        self._checkpoint = own.pop(_CHECKPOINT, "")
        self._column = own.pop(_COLUMN, "event_time")
        super().__init__(own)

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(…)`."""
        return LATE_SOURCE

    def streamReader(self, schema: StructType) -> InTimeReader:  # noqa: N802 - Spark's name
        """Return what reads the ledger as a stream."""
        return InTimeReader(super().streamReader(schema), self._checkpoint, self._column)


class InTimePlaces(InputPartition):
    """What one task reads, and up to which moment it is late."""

    def __init__(self, places: Any, watermark: datetime | None) -> None:
        super().__init__((places, watermark))


class InTimeReader(StreamReader):
    """Reads the ledger batch by batch, without late events."""

    def __init__(self, reader: StreamReader, checkpoint: str, column: str) -> None:
        super().__init__(reader._options, reader._columns)
        self._checkpoint = checkpoint
        self._column = column

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return what the tasks of a batch read, with the watermark written ahead for it."""
        watermark = _in_force(Path(self._checkpoint, "offsets"), end["mark"])
        return [InTimePlaces(one.value, watermark) for one in super().partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the events of a task that come in time."""
        import pyarrow.compute as pc

        places, watermark = partition.value
        for batch in super().read(Places(places)):
            if watermark is None:
                yield batch
            else:
                kept = batch.filter(pc.greater(batch.column(self._column), watermark))
                if kept.num_rows:
                    yield kept


def _in_force(offsets: Path, mark: str) -> datetime | None:
    """Return the watermark of the batch that ends at a mark: the newest one that was planned."""
    newest = max((int(path.name) for path in offsets.iterdir() if path.name.isdigit()), default=None)
    planned = None if newest is None else read_offsets((offsets / str(newest)).read_text())
    if planned is None or planned[0] != mark:
        raise Corrupt(f"the checkpoint {offsets.parent} does not say what the batch up to {mark} is made of")
    return planned[1]
