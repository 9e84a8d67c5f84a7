"""Footers of Parquet files, which say what the columns are: no page checksum covers one, and a reader takes a column that it
does not name for null. Bytes go in, what a manifest keeps of a footer comes out."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Final

from noetl.model.dataset import FileEntry
from noetl.spark.lake.integrity.read_errors import reading
from noetl.spark.lake.storage import Lake

_END: Final = 8
"""A file ends with the length of its footer and a mark of four bytes."""
_AT_ONCE: Final = 32


def footer_of(end: bytes | memoryview) -> str:
    """Return how long the footer is that these last bytes of a file have in them, and its SHA-256."""
    size = _length(end[-_END:])
    return f"{size}:{hashlib.sha256(end[-size:]).hexdigest()}"


def footer_in(file: BinaryIO | io.BufferedReader, size: int) -> str:
    """Return the same of an open file."""
    file.seek(size - _END)
    length = _length(file.read(_END))
    file.seek(size - length)
    return footer_of(file.read(length))


def footers_stand(lake: Lake, entries: Sequence[FileEntry]) -> list[bool]:
    """Tell of files that have the size of their entries whether they end as was committed; true where no manifest says."""
    if lake.directory is not None:
        return [_stands(lake, entry) for entry in entries]
    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(entries)))) as pool:
        return list(pool.map(lambda entry: _stands(lake, entry), entries))


def _stands(lake: Lake, entry: FileEntry) -> bool:
    if not entry.footer:
        return True
    # As long as it was written: what the file itself says now is what may be damaged.
    size = int(entry.footer.partition(":")[0])
    with reading(entry.path, lake):
        end = _end(lake, entry, size)
    return f"{size}:{hashlib.sha256(end).hexdigest()}" == entry.footer


def _end(lake: Lake, entry: FileEntry, size: int) -> bytes:
    directory = lake.directory
    if directory is None:
        import obstore

        return obstore.get_range(lake.store(), entry.path, start=entry.bytes - size, length=size).to_bytes()
    with open(f"{directory}/{entry.path}", "rb", buffering=0) as file:  # noqa: PTH123 - no Path for each of many files
        file.seek(entry.bytes - size)
        return file.read(size)


def _length(end: bytes | memoryview) -> int:
    return int.from_bytes(end[:4], "little") + _END
