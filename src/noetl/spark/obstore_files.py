"""Single Parquet files on any object store: written with their digest on the way, and read. Knows no Spark."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from noetl.model.dataset import FileEntry
from noetl.spark.durable import make_durable
from noetl.spark.integrity.checking import Checks, refuse_other_bytes
from noetl.spark.integrity.footers import footer_of
from noetl.spark.integrity.reading import reading
from noetl.spark.integrity.stamps import stamp_of
from noetl.spark.lake import Lake
from noetl.spark.statistics import column_statistics

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
