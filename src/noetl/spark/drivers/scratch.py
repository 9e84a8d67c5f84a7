"""A directory of its own for each driver, and an end to those whose driver is gone without having cleared up.

The driver holds a lock in its directory as long as it lives, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "driver-"
_LOCK: Final = "alive"


def new_scratch(home: Path) -> Path:
    """Make a directory for a driver, and remove those of drivers that died."""
    home.mkdir(parents=True, exist_ok=True)
    for left in home.absolute().glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it has no lock yet, or another process removes it just now
            _remove_if_left(left)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home.absolute()))


@contextmanager
def claimed(scratch: Path) -> Iterator[int]:
    """Give the lock as a descriptor for a child; it is held until the child and everybody it gave it to is gone."""
    descriptor = os.open(scratch / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_if_left(directory: Path) -> None:
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    finally:
        os.close(descriptor)
