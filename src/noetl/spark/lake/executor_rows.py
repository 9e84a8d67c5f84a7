"""Rows of Spark tasks to Parquet files and back, as Arrow batches. Runs in executors; knows no session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from noetl.model.dataset import FileEntry, partition_key
from noetl.spark.lake.parquet_files import ParquetFile, opened
from noetl.spark.lake.storage import Lake, commit_directory

_BATCH_ROWS: Final = 65_536
RETURNED: Final = (
    "work int, partition string, path string, bytes long, rows long, sha256 string, stats string, stamp string,"
    " footer string"
)
"""What an executor tells of each file it wrote, as Spark's DDL."""
_RETURNED_ARROW: Final = pa.schema(
    [
        ("work", pa.int32()),
        ("partition", pa.string()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("sha256", pa.string()),
        ("stats", pa.string()),
        ("stamp", pa.string()),
        ("footer", pa.string()),
    ]
)
Batches = Iterator[pa.RecordBatch]
SOME: Final = "v"
"""A hidden partition column holds this and the value's text, or `n` for null: so that neither null nor "" is special."""


@dataclass(frozen=True)
class Place:
    """Whose rows they are, and the partition they go to where that is known beforehand."""

    task_id: str
    attempt: int
    partition_key: str


@dataclass(frozen=True)
class Placing:
    """Where rows go. Neither `split` nor `key` columns get into the files; rows of one place stand together."""

    location: str
    places: tuple[Place, ...]
    columns: tuple[str, ...] = ()
    """Partition columns, where the partition is a matter of each row; `split` are their texts."""
    split: tuple[str, ...] = ()
    key: str | None = None
    """The column that says which of `places` a row belongs to; without it all are of the first."""

    @property
    def hidden(self) -> list[str]:
        """The columns that only say where a row goes."""
        return [*self.split, *([self.key] if self.key else [])]

    def place(self, values: Sequence[Any]) -> tuple[int, str]:
        """Return the index of the place and the partition for the values of the hidden columns."""
        index = int(values[-1]) if self.key else 0
        if not self.columns:
            return index, self.places[index].partition_key
        texts = dict(zip(self.columns, map(shown, values), strict=False))
        return index, partition_key(self.columns, texts)


def shown(text: str) -> str | None:
    """Return the text of a partition's value from a hidden column."""
    return text[len(SOME) :] if text.startswith(SOME) else None


def reader(lake: Lake, schema: pa.Schema, key: str | None) -> Callable[[Batches], Batches]:
    """Return what turns rows of (file, task) into the rows of those files, with the task as column `key`."""

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for told in batch.to_pylist():
                with opened(lake, msgspec.json.decode(told["file"], type=FileEntry)) as parquet:
                    held = [name for name in parquet.schema_arrow.names if name in schema.names]
                    for rows in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=held):
                        yield _conformed(rows, schema, key, told["task"])

    return read


def writer(lake: Lake, placing: Placing) -> Callable[[Batches], Batches]:
    """Return what writes rows into files of the Spark task's own and tells of those files."""

    def write(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        written = _Written(lake, placing, "0" if context is None else str(context.taskAttemptId()))
        for batch in batches:
            written.add(batch)
        yield pa.RecordBatch.from_pylist(written.told(), schema=_RETURNED_ARROW)

    return write


class _Written:
    """The files of one Spark task: one is open at a time."""

    def __init__(self, lake: Lake, placing: Placing, mark: str) -> None:
        self._lake, self._placing, self._mark = lake, placing, mark
        self._values: tuple[Any, ...] | None = None
        self._file: ParquetFile | None = None
        self._told: list[dict[str, Any]] = []
        self._place = (0, "")

    def add(self, batch: pa.RecordBatch) -> None:
        hidden = self._placing.hidden
        rows = batch.drop_columns(hidden) if hidden else batch
        for start, length, values in _runs(batch, hidden):
            if self._file is None or values != self._values:
                self._finish()
                self._begin(values, rows.schema)
            assert self._file is not None
            self._file.add(pa.Table.from_batches([rows.slice(start, length)]))

    def told(self) -> list[dict[str, Any]]:
        self._finish()
        return self._told

    def _begin(self, values: tuple[Any, ...], schema: pa.Schema) -> None:
        self._values = values
        index, key = self._place = self._placing.place(values)
        place = self._placing.places[index]
        directory = commit_directory(self._placing.location, key, place.task_id, place.attempt, self._mark)
        self._file = ParquetFile(self._lake, f"{directory}/part-{len(self._told):05d}.parquet", schema)

    def _finish(self) -> None:
        if self._file is None:
            return
        entry, (index, key) = self._file.close(), self._place
        self._told.append(
            {
                "work": index,
                "partition": key,
                "path": entry.path,
                "bytes": entry.bytes,
                "rows": entry.rows,
                "sha256": entry.sha256,
                "stats": json.dumps(entry.stats),
                "stamp": entry.stamp,
                "footer": entry.footer,
            }
        )
        self._file = None


def _conformed(rows: pa.RecordBatch, schema: pa.Schema, key: str | None, task: int) -> pa.RecordBatch:
    columns = []
    for named in schema:
        if named.name == key:
            columns.append(pa.repeat(pa.scalar(task, named.type), rows.num_rows))
        elif named.name in rows.schema.names:
            columns.append(rows.column(named.name).cast(named.type))
        else:
            columns.append(pa.nulls(rows.num_rows, named.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _runs(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Yield (start, length, values) for each run of rows with equal values in the columns."""
    if not batch.num_rows:
        return
    values = list(zip(*(batch.column(name).to_pylist() for name in columns), strict=True)) if columns else []
    start = 0
    for index in range(1, len(values)):
        if values[index] != values[start]:
            yield start, index - start, values[start]
            start = index
    yield start, batch.num_rows - start, values[start] if values else ()
