"""The ledger as a stream without what comes too late: those at or before the watermark of their batch.

Spark wrote the watermark ahead with the batch's range, in the checkpoint that is read here. So a batch that is read
again leaves out the same events; and since nothing late reaches Spark, it drops nothing by rules of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from noetl.errors import Corrupt, InputError
from noetl.spark.source.data_source import LedgerSource, Places, StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
import json
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


_LINES = 3
"""A version, what holds for the whole batch, and the offset of the one source."""


@dataclass(frozen=True)
class Planned:
    """The range of one batch: after one mark, up to another."""

    batch: int
    since: str | None
    mark: str
    watermark: datetime | None
    """Events at or before it are late; None before there is one."""


class Checkpoint:
    """The checkpoint of one query, on whatever file system Spark reaches."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._jvm: Any = session.sparkContext._jvm
        self._path = path
        self._configuration: Any = session._jsparkSession.sessionState().newHadoopConf()

    def planned(self, batch: int) -> Planned:
        """Return what was written ahead for a batch."""
        before = None if batch == 0 else read_offsets(self._text(f"offsets/{batch - 1}"))[0]
        mark, watermark = read_offsets(self._text(f"offsets/{batch}"))
        return Planned(batch, before, mark, watermark)

    def identity(self) -> str:
        """Return the id Spark gave the query when its checkpoint was made; another checkpoint has another."""
        return str(json.loads(self._text("metadata"))["id"])

    def _text(self, name: str) -> str:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._path}/{name}")
        try:
            opened = path.getFileSystem(self._configuration).open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
            finally:
                opened.close()
        except Exception as problem:
            raise Corrupt(
                f"{name} of the checkpoint {self._path} cannot be read",
                hint="`noetl views rebuild` builds the view anew, with a checkpoint of its own",
            ) from problem


def read_offsets(text: str) -> tuple[str, datetime | None]:
    """Return the mark and the watermark of a batch from what Spark wrote ahead."""
    lines = text.strip().split("\n")
    if len(lines) != _LINES or lines[0] != "v1":
        raise Corrupt(f"the offsets of a batch are not of the one source a view has: {lines[0]}, {len(lines)} lines")
    about, offset = json.loads(lines[1]), json.loads(lines[2])
    since_epoch = int(about.get("batchWatermarkMs") or 0)
    watermark = datetime.fromtimestamp(since_epoch / 1000, UTC) if since_epoch > 0 else None
    return str(offset["mark"]), watermark
