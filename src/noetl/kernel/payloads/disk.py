"""Tier 2: plain bytes on the disk of a node, proven by their digest whenever they are read.

Bounded in size, the least used go first; it outlives restarts and is shared by all processes of the node. A disk that is
full, read-only or broken costs a read from the durable tier and is counted, never raised.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from noetl import faults
from noetl.kernel.payloads.figures import Figures

_BYTES: Final = struct.Struct("<Q")
_MAPPED_FROM: Final = 1 << 20
_LOW_WATER: Final = 0.9
_TOUCH_SECONDS: Final = 60.0
_STRAY_SECONDS: Final = 3600.0
_INCOMING: Final = "incoming"
_PATIENCE: Final = 1.0
_MOST_MAPPED: Final = 256
_MOST_ROUNDS: Final = 10


class DiskCache:
    """Files under their digests, in a folder for each organization."""

    def __init__(self, root: Path, limit: int, figures: Figures) -> None:
        self._root = root
        self._limit = limit
        self._figures = figures
        self._usage: int | None = None
        self._mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def put(self, key: str, data: bytes | memoryview) -> bool:
        """Keep bytes; tell whether. They need not survive a power loss: what is damaged is not believed."""
        if len(data) > self._limit // 2:
            return False
        try:
            path = self._path(key)
            if path.exists():
                return True
            self._grow(len(data))
            incoming = self._root / _INCOMING / secrets.token_hex(16)
            try:
                with incoming.open("xb", buffering=0) as file:
                    _write_all(file.fileno(), data)
                faults.reach("disk.before_rename")
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                incoming.rename(path)
            except BaseException:
                incoming.unlink(missing_ok=True)
                raise
        except OSError as problem:
            self._figures.passed("disk", _reason(problem))
            return False
        self._figures.wrote("disk", len(data))
        return True

    def get(self, key: str, sha256: str, length: int) -> bytes | memoryview | None:
        """Return proven bytes, large ones where the system holds the file in memory; None if they are not there."""
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                found = os.fstat(file.fileno())
                data: bytes | memoryview
                if length >= _MAPPED_FROM and found.st_size == length and len(self._mapped) < _MOST_MAPPED:
                    mapping = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
                    self._mapped.add(mapping)
                    data = memoryview(mapping)
                else:
                    data = file.readall()
        except FileNotFoundError:
            return None
        except OSError as problem:
            self._figures.passed("disk", _reason(problem))
            return None
        if len(data) != length or hashlib.sha256(data).hexdigest() != sha256:
            self._figures.passed("disk", "digest")
            self.drop(key)
            return None
        if time.time() - found.st_mtime > _TOUCH_SECONDS:
            # The time of the last change stands for that of the last use, which many systems do not record.
            with suppress(OSError):
                os.utime(path)
        return data

    def drop(self, key: str) -> None:
        """Forget a key."""
        with suppress(OSError):
            path = self._path(key)
            size = path.stat().st_size
            path.unlink()
            self._add(-size)

    def in_use(self) -> int:
        """Return about how many bytes are kept."""
        with suppress(OSError):
            return int(_BYTES.unpack((self._root / "in-use").read_bytes())[0])
        return 0

    def _path(self, key: str) -> Path:
        return self._root / "objects" / key[:2] / key

    def _grow(self, size: int) -> None:
        """Count bytes that are about to be written, and make room for them."""
        if self._add(size) > self._limit:
            self._evict(size)

    def _add(self, size: int) -> int:
        """Change the count all processes share and return it; it may be off after a crash, until the next eviction."""
        return self._recount(lambda counted: counted + size)

    def _recount(self, change: Callable[[int], int]) -> int:
        if self._usage is None:
            (self._root / _INCOMING).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._usage = os.open(self._root / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(self._usage)
        try:
            now = max(0, change(self._counted()))
            os.pwrite(self._usage, _BYTES.pack(now), 0)
            return now
        finally:
            fcntl.flock(self._usage, fcntl.LOCK_UN)

    def _counted(self) -> int:
        assert self._usage is not None
        found = os.pread(self._usage, _BYTES.size, 0)
        return int(_BYTES.unpack(found)[0]) if len(found) == _BYTES.size else self._measured()[0]

    def _evict(self, coming: int) -> None:
        """Remove the least used until there is room; one process at a time does it, others go on."""
        evicting = os.open(self._root / "evicting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(evicting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            rounds = 0
            # Others, who leave it to this process, may write more meanwhile than there was room for.
            while self._make_room(coming) > self._limit and rounds < _MOST_ROUNDS:
                rounds += 1
            self._sweep()
        finally:
            os.close(evicting)

    def _make_room(self, coming: int) -> int:
        """Remove the least used, and return the count with what was written meanwhile."""
        before = self._add(0)
        total, files = self._measured()
        total += coming
        for _, size, path in sorted(files):
            if total <= self._limit * _LOW_WATER:
                break
            with suppress(FileNotFoundError):
                path.unlink()
                total -= size
        return self._recount(lambda counted: total + counted - before)

    def _measured(self) -> tuple[int, list[tuple[float, int, Path]]]:
        files = []
        for folder, _, names in os.walk(self._root / "objects"):
            for name in names:
                with suppress(OSError):
                    path = Path(folder, name)
                    found = path.stat()
                    files.append((found.st_mtime, found.st_size, path))
        return sum(size for _, size, _ in files), files

    def _sweep(self) -> None:
        """Remove what killed processes left half-written."""
        oldest = time.time() - _STRAY_SECONDS
        for stray in (self._root / _INCOMING).iterdir():
            with suppress(FileNotFoundError):
                if stray.stat().st_mtime < oldest:
                    stray.unlink()

    def close(self) -> None:
        """Let go of the files."""
        if self._usage is not None:
            os.close(self._usage)
            self._usage = None


def _lock(file: int) -> None:
    """Take a lock that is held for moments only; BlockingIOError where its holder stands still."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            os.sched_yield()


def _write_all(file: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _reason(problem: OSError) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "full"
    return "read_only" if problem.errno in (errno.EROFS, errno.EACCES, errno.EPERM) else "error"
