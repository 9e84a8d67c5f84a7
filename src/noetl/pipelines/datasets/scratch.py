"""A directory among the temporary files for the time of a block; those whose process was killed are removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_NEW_SECONDS: Final = 60.0
"""One that is younger may not have been locked yet."""


@contextmanager
def own_scratch(prefix: str) -> Iterator[Path]:
    """Give a directory whose name begins so; it is locked, and whatever was left by a process that is gone is removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # somebody uses it, or removes it just now
            _remove_if_left(left)
    with tempfile.TemporaryDirectory(prefix=prefix) as made:
        descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(descriptor)


def _remove_if_left(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if ours and found.st_mtime < time.time() - _NEW_SECONDS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
    finally:
        os.close(descriptor)
