"""Files that users' code left where it could write: a directory and a name go in, its bytes come out, or a refusal.

A task may have put anything there: a link to a secret, a pipe that nobody writes to, a device, a file without an end. Nothing
here follows a link, waits, or reads more than it was told to. The directory is one that was opened before the task began: by
its name it might be another one now.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Unsafe(Exception):
    """What was left is not a file that may be read; its text goes after the words "which"."""


def read_left(directory: int, name: str, most: int) -> bytes | None:
    """Return what a file has, or None where there is none."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as problem:
        why = "is a link" if problem.errno == errno.ELOOP else f"cannot be read: {problem.strerror}"
        raise Unsafe(why) from None
    with os.fdopen(descriptor, "rb") as file:
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            raise Unsafe("is no ordinary file")
        # One with a second name may be somebody else's, which the task could not have read itself.
        if told.st_nlink != 1:
            raise Unsafe("has another name elsewhere")
        data = file.read(most + 1) if told.st_size <= most else b""
    if told.st_size > most or len(data) > most:
        raise Unsafe(f"is larger than {most} bytes")
    return data


def make_mark(directory: int, name: str) -> None:
    """Make an empty file whose presence says something; nothing where the name is taken or the directory gone."""
    with suppress(FileExistsError, FileNotFoundError):
        os.close(os.open(name, _MAKE, 0o644, dir_fd=directory))


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Hold a directory, whatever name it has later."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
