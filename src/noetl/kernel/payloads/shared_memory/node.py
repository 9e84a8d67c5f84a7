"""What the processes of a node share about their regions: the budget, the owners that are alive, and their figures.

It is a directory beside the regions, for one user and one node id. Nothing in it is needed for correctness.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2s
from pathlib import Path
from typing import Final

import msgspec

from noetl.kernel.payloads.figures import Figures, Told, together
from noetl.kernel.payloads.shared_memory.port import HintBook
from noetl.kernel.payloads.shared_memory.region import owner_in

_BYTES: Final = struct.Struct("<Q")
_PATIENCE: Final = 0.002
_LONG_PATIENCE: Final = 1.0


class Busy(Exception):
    """Another process holds the node's lock for longer than a write should wait."""


def node_tag(node_id: str) -> str:
    """Return what tells a node of this user from others in the names of its regions."""
    return blake2s(f"{os.geteuid()}\x1f{node_id}".encode()).hexdigest()[:8]


def node_path(base: Path, node_id: str) -> Path:
    """Return the directory of a node beside its regions."""
    return base / f"noetl.{node_tag(node_id)}"


class NodeDirectory:
    """The node as one process sees it, and that process as one of its owners."""

    def __init__(self, base: Path, node_id: str) -> None:
        self.base = base
        self.node_id = node_id
        self.tag = node_tag(node_id)
        self.owner = secrets.token_hex(4)
        self.path = node_path(base, node_id)
        self._pid = os.getpid()
        self._thread_lock = threading.Lock()
        self.path.mkdir(mode=0o700, exist_ok=True)
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self.path} belongs to somebody else")
        self._owners = self.path / "owners"
        self._owners.mkdir(mode=0o700, exist_ok=True)
        self.hints = HintBook(self.path / "hints", self.owner)
        self._figures = NodeFigures(self.path / "figures", self.owner)
        self._lock_file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._in_use = _counter(self.path / "in-use")
        with self.locked(_LONG_PATIENCE):
            # Under the lock, since a sweep takes an owner whose file is not locked for dead.
            self._own = _counter(self._owners / self.owner, hold=True)

    @contextmanager
    def locked(self, patience: float = _PATIENCE) -> Iterator[None]:
        """Hold the node's lock; Busy if it is not to be had soon."""
        with self._thread_lock:
            until = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise Busy from None
                    os.sched_yield()
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def reserve(self, charge: int, budget: int) -> bool:
        """Take a charge from the node's budget if it is there."""
        with self.locked():
            if self.in_use + charge > budget:
                return False
            # The own count goes first: the next sweep sums up the owners' counts, should we die in between.
            _add(self._own, charge)
            _add(self._in_use, charge)
        return True

    def release(self, charge: int) -> None:
        """Give a charge back."""
        with suppress(Busy), self.locked(_LONG_PATIENCE):
            _add(self._own, -charge)
            _add(self._in_use, -charge)

    @property
    def in_use(self) -> int:
        """The bytes in use on the whole node."""
        return int(_BYTES.unpack_from(self._in_use)[0])

    def place(self, shm_name: str) -> str:
        """Return the path of a region."""
        return f"{self.base}{shm_name}"

    def regions(self) -> list[str]:
        """Return the names of this node's regions, whoever owns them."""
        found = []
        with os.scandir(self.base) as entries:
            for entry in entries:
                owner = owner_in(f"/{entry.name}")
                if owner is not None and owner[0] == self.tag:
                    found.append(f"/{entry.name}")
        return found

    def sweep(self) -> int:
        """Remove the regions, hints and counts of owners that are dead, and return how many regions those were."""
        with self.locked(_LONG_PATIENCE):
            alive = self._alive()
            dead = [name for name in self.regions() if (owner_in(name) or ("", ""))[1] not in alive]
            for name in dead:
                Path(self.place(name)).unlink(missing_ok=True)
            for path in list(self._owners.iterdir()):
                if path.name not in alive:
                    self._figures.bury(path.name)
                    path.unlink(missing_ok=True)
            _BYTES.pack_into(self._in_use, 0, sum(alive.values()))
        self.hints.sweep(set(dead))
        return len(dead)

    def _alive(self) -> dict[str, int]:
        """Return the owners that are alive with the bytes each has in use."""
        alive = {}
        for path in self._owners.iterdir():
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alive[path.name] = int(_BYTES.unpack(os.pread(descriptor, _BYTES.size, 0))[0])
            finally:
                os.close(descriptor)
        return alive

    def tell(self, figures: Figures, *, now: bool = False) -> None:
        """Show the figures of this process to others."""
        self._figures.tell(figures, now=now)

    def close(self) -> None:
        """Leave the node; the regions of this process must be gone by now. A forked child only lets go of the files:
        a lock it shares would outlive its owner."""
        if os.getpid() == self._pid:
            with suppress(OSError, Busy), self.locked(_LONG_PATIENCE):
                self._figures.bury(self.owner)
                _add(self._in_use, -int(_BYTES.unpack_from(self._own)[0]))
                (self._owners / self.owner).unlink(missing_ok=True)
        self._own.close()
        self._in_use.close()
        os.close(self._lock_file)


def _counter(path: Path, *, hold: bool = False) -> mmap.mmap:
    """Map a counter's file; its lock, if it is to be held, lasts as long as the mapping, which has the file open too."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if hold:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Changes nothing that is there, and fails here, not at the first write to the mapping, where memory is full.
        os.posix_fallocate(descriptor, 0, _BYTES.size)
        return mmap.mmap(descriptor, _BYTES.size)
    finally:
        os.close(descriptor)


def _add(counter: mmap.mmap, number: int) -> None:
    _BYTES.pack_into(counter, 0, max(0, int(_BYTES.unpack_from(counter)[0]) + number))


_TELL_SECONDS: Final = 1.0
_TOTAL: Final = "total.json"


class NodeFigures:
    """Shows the figures of this process to others."""

    def __init__(self, folder: Path, owner: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._owner = owner
        self._changes, self._at = 0, 0.0

    def tell(self, figures: Figures, *, now: bool = False) -> None:
        """Write the figures down if there is news, at most once a second."""
        if figures.changes == self._changes or (not now and time.monotonic() - self._at < _TELL_SECONDS):
            return
        self._changes, self._at = figures.changes, time.monotonic()
        with suppress(OSError):
            _write(self._folder / f"{self._owner}.json", figures.told())

    def bury(self, owner: str) -> None:
        """Add the figures of an owner that is no more to those of all who went before; only under the node's lock."""
        path = self._folder / f"{owner}.json"
        with suppress(OSError):
            _write(self._folder / _TOTAL, together([_read(self._folder / _TOTAL), _read(path)]))
            path.unlink(missing_ok=True)


def told_in(folder: Path) -> Told:
    """Return the figures of all processes that told theirs in a folder."""
    return together(_read(path) for path in sorted(folder.glob("*.json")))


def _read(path: Path) -> Told:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Told)
    except (OSError, ValueError):
        return Told()


def _write(path: Path, told: Told) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(told))
    fresh.replace(path)
