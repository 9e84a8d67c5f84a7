"""Advisory file locks that vanish with their holder, even when it is killed.

In goes a path, out comes a held lock; the file itself is never deleted, since two processes must lock the same inode.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_SECONDS = 0.01


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock alone for the length of the block, waiting for it as long as it takes."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def shared(path: Path) -> int:
    """Hold the lock together with others until the returned descriptor is closed."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_exclusive(path: Path) -> int | None:
    """Hold the lock alone until the returned descriptor is closed, or return None if anybody else holds it."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def wait_exclusive(path: Path, seconds: float) -> int | None:
    """Like `try_exclusive`, but give the present holders some seconds to let go."""
    deadline = time.monotonic() + seconds
    while (descriptor := try_exclusive(path)) is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return descriptor


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at this moment."""
    descriptor = try_exclusive(path)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def sharers(path: Path) -> tuple[int, ...] | None:
    """The processes that hold the lock together, or None where the system does not tell."""
    try:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None if path.exists() else ()
    pids = set()
    for fields in map(str.split, lines):
        # A waiting lock has "->" as its second field, so the columns of a held one never match it by chance.
        if fields[1:4] == ["FLOCK", "ADVISORY", "READ"] and fields[5].rpartition(":")[2] == inode:
            pids.add(int(fields[4]))
    return tuple(sorted(pids))


def give_to_owner_of(directory: Path, descriptor: int) -> None:
    """Let a file made by root belong to whoever owns its directory, so that the owner can still use it."""
    if os.geteuid() == 0:
        owner = directory.stat()
        with suppress(PermissionError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    give_to_owner_of(path.parent, descriptor)
    return descriptor
