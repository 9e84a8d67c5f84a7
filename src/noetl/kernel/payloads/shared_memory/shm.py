"""Tier 1.5: tables in the shared memory of a node. One copy puts a table in, none takes it out.

A table lies in a file on a memory file system, `/dev/shm` on Linux, which is what POSIX shared memory is there. Whatever
speaks against a region is counted and answered with None: no caller ever fails for it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from noetl import faults
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.shared_memory.node import Busy, NodeDirectory
from noetl.kernel.payloads.shared_memory.port import Doubt, Filed, check_hint
from noetl.kernel.payloads.shared_memory.region import HEADER_BYTES, owner_in, read_header
from noetl.kernel.payloads.shared_memory.segments import Segments
from noetl.model.payload_ref import IpcHint, PayloadRef

MOST_ATTACHED: Final = 256
"""Regions one process has attached at a time; what it reads beyond that is copied, since each takes a descriptor."""
COPIED_UNDER: Final = 16 << 10
"""Smaller tables are copied out: that is quicker than to map them."""


class SharedMemory:
    """Regions as files in a memory file system."""

    def __init__(
        self,
        node: NodeDirectory,
        budget: int,
        grace: float,
        figures: Figures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._figures = figures
        self._segments = Segments(node, budget, grace, clock)
        self._attached: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def put(self, key: str, data: bytes | memoryview, schema_digest: str, origin: Origin) -> IpcHint | None:
        """Offer a table to the node; None if it was not taken."""
        standing = self._standing(key, len(data), schema_digest, origin)
        if standing is not None:
            return standing
        try:
            segment = self._segments.write(key, data, origin)
        except Busy:
            self._figures.passed("ipc", "busy")
            return None
        except (OSError, ValueError) as problem:
            self._figures.passed("ipc", _reason(problem))
            return None
        if segment is None:
            self._figures.exhausted()
            return None
        hint = IpcHint(
            node_id=self._node.node_id,
            shm_name=segment.name,
            schema_digest=schema_digest,
            valid_until=datetime.now(UTC) + timedelta(seconds=segment.seconds),
        )
        try:
            self._node.hints.file(key, Filed(hint, len(data)))
        except OSError as problem:
            self._segments.drop(segment)
            self._figures.passed("ipc", _reason(problem))
            return None
        self._segments.keep(segment)
        faults.reach("shm.after_hint")
        self._figures.wrote("ipc", len(data))
        return hint

    def _standing(self, key: str, length: int, schema_digest: str, origin: Origin) -> IpcHint | None:
        """Return the hint of the same table if it lies there already, and for half the time that is asked for."""
        try:
            filed = self._node.hints.filed(key)
        except (OSError, ValueError):
            return None
        if filed is None or (filed.length, filed.hint.schema_digest) != (length, schema_digest):
            return None
        left = filed.hint.valid_until - datetime.now(UTC)
        lasts = left > timedelta(seconds=max(0.0, origin.lease_seconds / 2))
        return filed.hint if lasts and Path(self._node.place(filed.hint.shm_name)).exists() else None

    def attach(self, key: str, ref: PayloadRef) -> memoryview | None:
        """Return a table's bytes where they lie, whole as long as they are held; None for any doubt."""
        try:
            filed = self._node.hints.filed(key)
            if filed is None:
                return None
            check_hint(filed, ref, self._node.node_id)
            if (owner_in(filed.hint.shm_name) or ("",))[0] != self._node.tag:
                raise Doubt("name")
            return self._opened(self._node.place(filed.hint.shm_name), ref.bytes)
        except FileNotFoundError:
            self._figures.passed("ipc", "gone")
        except Doubt as doubt:
            self._figures.passed("ipc", str(doubt))
        except OSError as problem:
            self._figures.passed("ipc", _reason(problem))
        except ValueError:
            self._figures.passed("ipc", "hint")
        return None

    def _opened(self, path: str, length: int) -> memoryview:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            try:
                # Held by the mapping too, which has the file open itself: a region in use is never written again.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Doubt("reused") from None
            found = os.fstat(file)
            # An owner renames a region before it writes it again, so the name tells whether this still is that table.
            if Path(path).lstat().st_ino != found.st_ino:
                raise Doubt("reused")
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise Doubt("owner")
            if found.st_size < HEADER_BYTES + length:
                raise Doubt("length")
            if read_header(os.pread(file, HEADER_BYTES, 0)) != length:
                raise Doubt("header")
            if length < COPIED_UNDER or len(self._attached) >= MOST_ATTACHED:
                return memoryview(copied(file, length))
            return self._mapped(file, length)
        finally:
            os.close(file)

    def _mapped(self, file: int, length: int) -> memoryview:
        mapping = mmap.mmap(file, HEADER_BYTES + length, access=mmap.ACCESS_READ)
        self._attached.add(mapping)
        return memoryview(mapping)[HEADER_BYTES:]

    def hint(self, key: str) -> IpcHint | None:
        """Return where a table lies."""
        try:
            filed = self._node.hints.filed(key)
        except (OSError, ValueError):
            return None
        return None if filed is None else filed.hint

    def drop(self, key: str) -> None:
        """Make a table unknown; its region goes when its time is over."""
        self._node.hints.forget(key)

    def in_use(self) -> int:
        """Return the bytes in use on the whole node."""
        return self._node.in_use

    def sweep(self) -> int:
        """Remove what dead processes left, and return how many regions that was."""
        try:
            return self._node.sweep()
        except (Busy, OSError):
            self._figures.passed("ipc", "busy")
            return 0

    def expire(self) -> None:
        """Remove now what is over, as a thread does by itself in time."""
        self._segments.expire()

    def close(self) -> None:
        """Remove every region of this process."""
        self._segments.close()

    def abandon(self) -> None:
        """Let go of everything without removing it, as a forked child must."""
        self._segments.abandon()


def memory_directory() -> Path:
    """Return where this system keeps shared memory; without such a place, where it keeps temporary files."""
    import tempfile

    shared = Path("/dev/shm")  # noqa: S108 - the names in it are checked for their owner
    return shared if shared.is_dir() else Path(tempfile.gettempdir())


def copied(file: int, length: int) -> bytes:
    """Return the bytes of a region as a copy."""
    parts, at = [], HEADER_BYTES
    while at < HEADER_BYTES + length:
        part = os.pread(file, HEADER_BYTES + length - at, at)
        if not part:
            raise Doubt("length")
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _reason(problem: OSError | ValueError) -> str:
    return (
        "full"
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG)
        else "error"
    )
