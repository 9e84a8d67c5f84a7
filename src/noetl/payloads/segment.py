"""One region of shared memory as its owner has it: made, written with one copy, locked, renamed, unlinked."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from noetl.payloads.region import HEADER_BYTES, charge_for, pack_header

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
