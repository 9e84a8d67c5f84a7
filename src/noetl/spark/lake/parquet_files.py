"""Single Parquet files on any object store: written with digests, measured by footers, and read. Knows no Spark."""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from noetl.model.dataset import FileEntry
from noetl.spark.lake.integrity.checks import Checks, refuse_other_bytes
from noetl.spark.lake.integrity.footers import footer_in, footer_of
from noetl.spark.lake.integrity.read_errors import reading
from noetl.spark.lake.integrity.stamps import stamp_of
from noetl.spark.lake.storage import Lake, make_durable

_GROUP_ROWS: Final = 500_000
_GROUP_BYTES: Final = 128 << 20
_WHOLE_BYTES: Final = 256 << 20


def read_table(lake: Lake, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one file, or some of its columns."""
    with opened(lake, entry) as parquet:
        return parquet.read(columns=None if columns is None else list(columns))


def write_table(lake: Lake, path: str, table: pa.Table) -> FileEntry:
    """Write one file and return its entry."""
    file = ParquetFile(lake, path, table.schema)
    file.add(table)
    entry = file.close()
    make_durable(lake, [path])
    return entry


@contextmanager
def opened(lake: Lake, entry: FileEntry) -> Iterator[pq.ParquetFile]:
    """Open a file for the time of the block if it is what was committed; a small one of an object store is fetched at once."""
    import obstore

    with reading(entry.path, lake):
        if lake.directory is not None or entry.bytes > _WHOLE_BYTES:
            Checks(lake).unchanged([entry])
            with lake.opened(entry.path) as source:
                yield pq.ParquetFile(source, page_checksum_verification=True)
            return
        data = pa.py_buffer(obstore.get(lake.store(), entry.path).bytes())
        refuse_other_bytes(entry, data)
        yield pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)


class ParquetFile:
    """One Parquet file being written; its digest is taken on the way."""

    def __init__(self, lake: Lake, path: str, schema: pa.Schema) -> None:
        import obstore

        self._lake = lake
        self._path = path
        self._sink = _HashingSink(obstore.open_writer(lake.store(), path))
        self._footer: list[pq.FileMetaData] = []
        self._parquet = pq.ParquetWriter(
            self._sink,
            schema,
            compression="snappy",
            coerce_timestamps="us",
            metadata_collector=self._footer,
            write_page_checksum=True,
        )
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        # A row group per small batch would make files that are slow to read, so rows are gathered first.
        self._held.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()

    def close(self) -> FileEntry:
        self._write()
        self._sink.end = bytearray()
        self._parquet.close()
        self._sink.close()
        metadata = self._footer[0]
        return FileEntry(
            path=self._path,
            bytes=self._sink.size,
            rows=metadata.num_rows,
            sha256=self._sink.digest.hexdigest(),
            stats=column_statistics(metadata),
            stamp=stamp_of(self._lake, self._path),
            footer=footer_of(bytes(self._sink.end)),
        )

    def _write(self) -> None:
        if self._held:
            self._parquet.write_table(pa.concat_tables(self._held), row_group_size=_GROUP_ROWS)
        self._held, self._rows, self._bytes = [], 0, 0


class _HashingSink(io.RawIOBase):
    """A file on an object store that knows the digest and size of what went into it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.end: bytearray | None = None
        """What is written from the moment on at which this is set."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = bytes(data)
        self.digest.update(written)
        self.size += len(written)
        if self.end is not None:
            self.end += written
        self._file.write(written)
        return len(written)

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


Given = TypeVar("Given")
Made = TypeVar("Made")
_LONGEST_TEXT: Final = 128
_MOST_COLUMNS: Final = 200
_THREADS: Final = max(4, os.cpu_count() or 1)


def measured(lake: Lake, paths: Sequence[str]) -> list[FileEntry]:
    """Return the entries of files that were just written, in the order of their paths."""
    make_durable(lake, paths)
    return in_parallel(lambda path: _measured(lake, path), paths)


def in_parallel(work: Callable[[Given], Made], given: Sequence[Given]) -> list[Made]:
    """Do a small piece of file work for each, on a few threads."""
    if len(given) < 2:
        return [work(one) for one in given]
    with ThreadPoolExecutor(min(_THREADS, len(given))) as pool:
        return list(pool.map(work, given))


def column_statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return `min`, `max` and `nulls` of each plain column, where every row group tells them."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    found: dict[str, Any] = {}
    if not groups:
        return found
    for index in range(min(metadata.num_columns, _MOST_COLUMNS)):
        described = metadata.schema.column(index)
        if described.path != described.name or "." in described.path or described.max_repetition_level:
            continue
        stats = _column([group.column(index) for group in groups])
        if stats:
            found[described.name] = stats
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON knows it, or none where that would be long or inexact."""
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST_TEXT else None
        case datetime():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return None


def _column(chunks: Sequence[Any]) -> dict[str, Any]:
    every = [chunk.statistics for chunk in chunks]
    if any(one is None for one in every):
        return {}
    stats: dict[str, Any] = {}
    if all(one.has_null_count for one in every):
        stats["nulls"] = sum(one.null_count for one in every)
    valued = [one for one, chunk in zip(every, chunks, strict=True) if _has_values(one, chunk)]
    if valued and all(one.has_min_max for one in valued):
        low, high = plain(min(one.min for one in valued)), plain(max(one.max for one in valued))
        if low is not None and high is not None:
            stats |= {"min": low, "max": high}
    return stats


def _has_values(stats: Any, chunk: Any) -> bool:
    return not (stats.has_null_count and stats.null_count == chunk.num_values)


def _measured(lake: Lake, path: str) -> FileEntry:
    with lake.opened(path) as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        size = opened.tell()
        footer = footer_in(opened, size)
        metadata = pq.read_metadata(opened)
    return FileEntry(
        path=path,
        bytes=size,
        rows=metadata.num_rows,
        sha256=digest,
        stats=column_statistics(metadata),
        stamp=stamp_of(lake, path),
        footer=footer,
    )
