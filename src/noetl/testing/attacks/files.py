"""Files of datasets as disks, people and other programs damage them: a bit flipped, cut short, swapped, gone.

What is done keeps the file's time where `unseen` says so: a failing disk changes no times.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_BIT: Final = 0x02

Attack = Callable[[Path], None]


def flip_a_bit(file: Path, *, column: str | None = None, unseen: bool = False) -> None:
    """Flip one bit in the pages of a column, so that a value changes and a reader that checks nothing still reads it."""
    metadata = pq.read_metadata(file)
    chunks = [metadata.row_group(0).column(place) for place in range(metadata.num_columns)]
    chunk = next(one for one in chunks if column in (None, one.path_in_schema))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    before = pq.read_table(file)
    for offset in reversed(range(start, start + chunk.total_compressed_size)):
        if _reads_otherwise(file, offset, before):
            _changed(file, offset, _BIT, unseen=unseen)
            return
    raise ValueError(f"no single bit of {file} changes a value")


def flip_a_bit_of_the_footer(file: Path, *, unseen: bool = False) -> None:
    """Flip one bit of what describes the columns, which no page checksum covers."""
    size = file.stat().st_size
    length = int.from_bytes(file.read_bytes()[-8:-4], "little")
    _changed(file, size - 8 - length // 2, 0x20, unseen=unseen)


def cut_short(file: Path) -> None:
    """Lose the second half, as a full disk or an interrupted copy does."""
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    """Lose everything but the name."""
    os.truncate(file, 0)


def remove(file: Path) -> None:
    """Delete the file."""
    file.unlink()


def swap(file: Path, *, unseen: bool = False) -> None:
    """Put another valid Parquet file of exactly the same size in its place: one value differs, no page fails its checksum."""
    times = file.stat()
    other = _one_value_changed(pq.read_table(file)).replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    pq.write_table(other, sink, compression="zstd", store_schema=False, write_statistics=False)
    file.write_bytes(_fitted(sink.getvalue().to_pybytes(), times.st_size))
    if unseen:
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def touch(file: Path) -> None:
    """Change the time alone, as a copy does that does not keep it: no damage."""
    os.utime(file, ns=(1, 1))


VISIBLE: Final[dict[str, Attack]] = {
    "a flipped bit": flip_a_bit,
    "a flipped bit of the footer": flip_a_bit_of_the_footer,
    "cut short": cut_short,
    "empty": empty,
    "removed": remove,
    "swapped": swap,
}
"""Attacks that leave a trace in size or time."""


def _reads_otherwise(file: Path, offset: int, before: pa.Table) -> bool:
    data = bytearray(file.read_bytes())
    data[offset] ^= _BIT
    try:
        after = pq.read_table(pa.BufferReader(bytes(data)))
        after.validate(full=True)
        return not after.equals(before)
    except (pa.ArrowException, OSError):
        return False


def _changed(file: Path, offset: int, mask: int, *, unseen: bool) -> None:
    times = file.stat()
    data = bytearray(file.read_bytes())
    data[offset] ^= mask
    file.write_bytes(data)
    if unseen:
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _one_value_changed(table: pa.Table) -> pa.Table:
    for place, field in enumerate(table.schema):
        if pa.types.is_integer(field.type):
            values = table.column(place).to_pylist()
            return table.set_column(place, field, pa.array([values[0] + 131_072, *values[1:]], field.type))
    raise ValueError("the table has no column of integers")


def _fitted(data: bytes, size: int) -> bytes:
    """Return a Parquet file of exactly this size: what it lacks stands unused between its pages and its footer."""
    length = int.from_bytes(data[-8:-4], "little")
    footer = len(data) - 8 - length
    if len(data) > size:
        raise ValueError(f"the other file has {len(data)} bytes, which are more than {size}")
    return data[:footer] + bytes(size - len(data)) + data[footer:]
