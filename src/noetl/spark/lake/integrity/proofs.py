"""Which files were hashed on this node and found to be what was committed: a log of digests, shared by its processes.

A proof is kept by path, size, and time or ETag: a file that any of these changed for is hashed again. A line that is lost
or torn costs one more hashing, so nothing is ever flushed or locked.
"""

from __future__ import annotations

import hashlib
import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final

from noetl.model.dataset import FileEntry
from noetl.spark.lake.integrity.stamps import Stat
from noetl.spark.lake.storage import Lake

_HEX: Final = 32
_LINE: Final = 2 * _HEX + 2
"""A line: the digest of a path, and the digest of what was proven of it."""
_TIDIED_BYTES: Final = 8 << 20
"""From this size on, a log that holds mostly what is overtaken is written anew."""


class Proofs:
    """The proofs of one lake; without a file they last as long as the process."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._known: dict[bytes, bytes] = {}
        self._read = 0

    def holds(self, entry: FileEntry, found: Stat) -> bool:
        """Tell whether the file, as it is now, was proven to have the digest of its entry."""
        key, value = _key(entry), _value(entry, found)
        if self._known.get(key) == value:
            return True
        with self._lock:
            self._catch_up()
            return self._known.get(key) == value

    def keep(self, entry: FileEntry, found: Stat) -> None:
        """Note that the file, as it is now, has the digest of its entry."""
        key, value = _key(entry), _value(entry, found)
        with self._lock:
            self._known[key] = value
            if self._file is not None:
                self._append(key.hex().encode() + b" " + value.hex().encode() + b"\n")

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # a home that cannot be written, or is full, only costs hashing the file again
        try:
            os.write(descriptor, line)
        except OSError:
            return
        finally:
            os.close(descriptor)

    def _catch_up(self) -> None:
        """Read what this process and others have appended since."""
        if self._file is None:
            return
        try:
            with self._file.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._read:
                    self._read = 0  # somebody wrote it anew
                file.seek(self._read)
                text = file.read()
        except OSError:
            return
        whole = text.rfind(b"\n") + 1
        for line in text[:whole].splitlines():
            key, _, value = line.partition(b" ")
            if len(key) == len(value) == _HEX:
                try:
                    self._known[bytes.fromhex(key.decode())] = bytes.fromhex(value.decode())
                except ValueError:
                    continue
        self._read += whole
        if self._read > max(_TIDIED_BYTES, 2 * _LINE * len(self._known)):
            self._tidy()

    def _tidy(self) -> None:
        assert self._file is not None
        fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        lines = [f"{key.hex()} {value.hex()}\n" for key, value in self._known.items()]
        try:
            fresh.write_text("".join(lines))
            fresh.chmod(0o600)
            self._read = fresh.stat().st_size
            fresh.replace(self._file)
        except OSError:
            fresh.unlink(missing_ok=True)


@lru_cache(maxsize=16)
def proofs_here(lake_root: str) -> Proofs:
    """Return the proofs that this process alone keeps for a lake."""
    del lake_root
    return Proofs()


def node_proofs(home: Path, lake: Lake) -> Proofs:
    """Return the proofs that the processes of one home on this node share for a lake."""
    name = hashlib.sha256(lake.root.encode()).hexdigest()[:16]
    return Proofs(home / "proofs" / f"{name}.log")


def _key(entry: FileEntry) -> bytes:
    return hashlib.sha256(entry.path.encode()).digest()[: _HEX // 2]


def _value(entry: FileEntry, found: Stat) -> bytes:
    told = f"{entry.sha256}\n{found.bytes}\n{found.identity}"
    return hashlib.sha256(told.encode()).digest()[: _HEX // 2]
