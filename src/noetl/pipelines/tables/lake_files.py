"""Parquet files of the lake, read, written and copied by this process through its object store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from noetl.model.dataset import FileEntry
from noetl.spark.lake.integrity.checks import UNBOUNDED, Checks, refuse_other_bytes, refuse_other_digest
from noetl.spark.lake.integrity.footers import footer_of
from noetl.spark.lake.integrity.proofs import Proofs
from noetl.spark.lake.integrity.read_errors import reading
from noetl.spark.lake.integrity.stamps import stamp_of
from noetl.spark.lake.parquet_files import column_statistics
from noetl.spark.lake.storage import Lake, make_durable, remove_sidecars

if TYPE_CHECKING:
    from obstore import ReadableFile

TOGETHER: Final = 8
"""Files that are fetched at a time."""
_CHUNK_BYTES: Final = 8 << 20


class LakeFiles:
    """The files under one root."""

    def __init__(self, lake: Lake, proofs: Proofs | None = None) -> None:
        """Take the lake, and what its files were proven to be on this node."""
        self._lake = lake
        self._store = lake.store()
        self.checks = Checks(lake, proofs)

    def address(self, entry: FileEntry) -> str:
        """Return where a file is, as people and other programs write it."""
        local = self.local(entry)
        return f"{self._lake.root.rstrip('/')}/{entry.path}" if local is None else str(local)

    def local(self, entry: FileEntry) -> Path | None:
        """Return the file itself where the lake is a directory of this machine."""
        directory = self._lake.directory
        return None if directory is None else directory / entry.path

    async def read(self, entries: Sequence[FileEntry], schema: pa.Schema) -> pa.Table:
        """Return the rows of files, in their order, with the columns of a schema; columns a file lacks are null."""
        room = asyncio.Semaphore(TOGETHER)

        async def one(entry: FileEntry) -> pa.Table:
            with reading(entry.path, self._lake):
                async with room:
                    answer = await obstore.get_async(self._store, entry.path)
                    data = await answer.bytes_async()
                return await asyncio.to_thread(_rows, entry, pa.py_buffer(data), schema)

        tables = await asyncio.gather(*map(one, entries))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def batches(self, entry: FileEntry, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
        """Give the rows of a file a few at a time, fetching no more of it than is asked for; this blocks."""
        with reading(entry.path, self._lake):
            self.checks.unchanged([entry])
            source = _Ranged(obstore.open_reader(self._store, entry.path))
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                for batch in file.iter_batches(rows):
                    yield with_columns(pa.Table.from_batches([batch]), schema)

    def copy(self, entry: FileEntry, target: Path) -> None:
        """Copy a file and prove on the way that it is what its manifest says; this blocks."""
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for chunk in self._chunks(entry):
                digest.update(chunk)
                file.write(chunk)
        refuse_other_digest(entry, target.stat().st_size, digest.hexdigest())

    def prove(self, entries: Sequence[FileEntry]) -> None:
        """Prove files for a reader that checks nothing itself; those that were proven on this node are not hashed again."""
        self.checks.proven(entries, UNBOUNDED)

    def restore(self, entry: FileEntry, source: FileEntry) -> None:
        """Put the bytes of another file, which are those that were committed, where a damaged file is; this blocks."""
        self.checks.proven([source], UNBOUNDED)
        target = self.local(entry)
        if target is None:
            with reading(source.path, self._lake):
                obstore.copy(self._store, source.path, entry.path)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
            try:
                self.copy(source, fresh)
                if entry.stamp.startswith("mtime:"):
                    time = int(entry.stamp.removeprefix("mtime:"))
                    os.utime(fresh, ns=(time, time))
                fresh.replace(target)
                remove_sidecars(self._lake, [entry.path])
            finally:
                fresh.unlink(missing_ok=True)
            make_durable(self._lake, [entry.path])
        self.checks.proven([entry], UNBOUNDED)

    def _chunks(self, entry: FileEntry) -> Iterator[bytes]:
        with reading(entry.path, self._lake):
            for chunk in obstore.get(self._store, entry.path).stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(chunk)

    async def write(self, folder: str, rows: pa.Table) -> FileEntry:
        """Write rows as one file of a folder."""
        data = await asyncio.to_thread(_encoded, rows)
        path = f"{folder}/part-00000.parquet"
        with reading(path, self._lake):
            await obstore.put_async(self._store, path, data.to_pybytes())
        await asyncio.to_thread(make_durable, self._lake, [path])
        footer = pq.read_metadata(pa.BufferReader(data))
        return FileEntry(
            path=path,
            bytes=len(data),
            rows=rows.num_rows,
            sha256=hashlib.sha256(data).hexdigest(),
            stats=column_statistics(footer),
            stamp=await asyncio.to_thread(stamp_of, self._lake, path),
            footer=footer_of(memoryview(data)),
        )


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a schema; those they lack are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


class _Ranged:
    """An object as the seekable file that Arrow asks for: each read fetches its own range."""

    closed = False

    def __init__(self, reader: ReadableFile) -> None:
        self._reader = reader

    def read(self, size: int = -1) -> bytes:
        return self._reader.read(None if size < 0 else size).to_bytes()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def close(self) -> None:
        self.closed = True
        self._reader.close()


def _rows(entry: FileEntry, data: pa.Buffer, schema: pa.Schema) -> pa.Table:
    refuse_other_bytes(entry, data)
    return with_columns(pq.read_table(pa.BufferReader(data), page_checksum_verification=True), schema)


def _encoded(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        coerce_timestamps="us",
        allow_truncated_timestamps=True,
        write_page_checksum=True,
    )
    return sink.getvalue()
