"""One region of shared memory: its layout that any language can read, and the region as its owner handles it.

Layout: a header of 64 bytes (magic `NOETLIPC`, version u32, length u64, zeros; little endian), then one Arrow IPC
stream. The owner makes it, writes it with one copy, locks, renames and unlinks it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

MAGIC: Final = b"NOETLIPC"
VERSION: Final = 1
HEADER_BYTES: Final = 64

_HEADER: Final = struct.Struct("<8sIQ")
_NAME: Final = re.compile(r"/noetl-[0-9]+-[0-9]+-([0-9a-f]{8})\.([0-9a-f]{8})\.[0-9]+")
_PAGE: Final = 4096
_BESIDE: Final = 2 * _PAGE
"""What a region takes beside its bytes, for its names."""


def pack_header(length: int) -> bytes:
    """Return the header of a region that holds `length` bytes."""
    return _HEADER.pack(MAGIC, VERSION, length).ljust(HEADER_BYTES, b"\0")


def read_header(data: bytes) -> int | None:
    """Return the length a header tells, or None if it is no header of this version."""
    if len(data) < _HEADER.size:
        return None
    magic, version, length = _HEADER.unpack_from(data)
    return int(length) if (magic, version) == (MAGIC, VERSION) else None


def region_name(execution_id: int, frame_id: int, node: str, owner: str, number: int) -> str:
    """Return the name of a region; node, owner and number are its sequence, which never comes twice."""
    return f"/noetl-{execution_id}-{frame_id}-{node}.{owner}.{number}"


def owner_in(name: str) -> tuple[str, str] | None:
    """Return node and owner a region's name tells, or None if it is no such name."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2]) if found else None


def capacity_for(length: int) -> int:
    """Return how large a region for `length` bytes is made: a little larger, so that others of its kind fit later."""
    size = HEADER_BYTES + length
    step = max(_PAGE, 1 << max(0, size.bit_length() - 5))
    return -(-size // step) * step


def charge_for(capacity: int) -> int:
    """Return what a region takes of its node's budget."""
    return -(-capacity // _PAGE) * _PAGE + _BESIDE


MAPPED_FROM: Final = 1 << 20
"""From this size on a region stays mapped by its owner, and is worth being used again."""

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NOTHING: Final = b"\0" * HEADER_BYTES


class Segment:
    """A region and what its owner knows of it."""

    def __init__(self, path: str, capacity: int, *, mapped: bool) -> None:
        self.path = path
        self.capacity = capacity
        self.charge = charge_for(capacity)
        self.name = ""
        self.key = ""
        self.seconds = 0.0
        """How long it stands."""
        self._mapping: mmap.mmap | None = None
        self._file = os.open(path, _FLAGS, 0o600)
        try:
            if mapped:
                # Memory that is not there is an error here; found out by a write to the mapping, it is a dead process.
                os.posix_fallocate(self._file, 0, capacity)
                self._mapping = mmap.mmap(self._file, capacity)
        except BaseException:
            self.remove()
            raise

    @property
    def is_mapped(self) -> bool:
        """Whether it can be written again at the cost of a copy."""
        return self._mapping is not None

    def write(self, data: bytes | memoryview) -> None:
        """Put a table in. The header comes last, so that it never speaks of bytes that are not there yet."""
        length = len(data)
        if self._mapping is None:
            try:
                _write_all(self._file, [pack_header(length), data])
            finally:
                os.close(self._file)
                self._file = -1
            return
        import pyarrow as pa

        self._mapping[:HEADER_BYTES] = _NOTHING
        target, source = pa.py_buffer(self._mapping), pa.py_buffer(data)
        # Lets other threads run, unlike an assignment to a slice.
        ctypes.memmove(target.address + HEADER_BYTES, source.address, length)
        del target
        self._mapping[:HEADER_BYTES] = pack_header(length)

    def take(self) -> bool:
        """Keep readers out, if none is in: each holds a shared lock as long as it uses the region."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def give(self) -> None:
        """Let readers in again."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def rename(self, path: str) -> None:
        """Give it another name: whoever had opened it under the old one sees that before it reads."""
        Path(self.path).rename(path)
        self.path = path

    def unlink(self) -> None:
        """Take its name away; readers that hold it keep it whole."""
        with suppress(OSError):
            Path(self.path).unlink()

    def remove(self) -> None:
        """Take its name away and let go of it."""
        self.unlink()
        self.close()

    def close(self) -> None:
        """Let go of it."""
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _write_all(file: int, parts: list[bytes | memoryview]) -> None:
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]
