"""The files that note acknowledged facts: which there are, what they say, and how lines that nobody needs leave them.

A file that is being written is never changed. The others are replaced as a whole, by one process at a time, so whoever
reads finds every fact that is still needed, also after a crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from noetl.faults import reach
from noetl.kernel.stream.losses.journal import Noted, written

_LOCK: Final = "settling.lock"
_FORGOTTEN: Final = "forgotten.jsonl"
_LEFT_SECONDS: Final = 60.0
"""A file without its name for so long is nobody's."""
_decode = msgspec.json.Decoder(Noted).decode


class Lines(msgspec.Struct, frozen=True):
    """What a file says from some place on, the place after its last whole line, and its size and identity when it was read."""

    noted: list[Noted]
    upto: int
    size: int
    inode: int


def files_in(directory: Path) -> list[Path]:
    """Return the files of a directory, the oldest first."""
    return sorted(directory.glob("facts-*.jsonl"))


def noted_in(directory: Path) -> Iterator[list[Noted]]:
    """Give what the files of a directory say, file by file; a line that was cut is left out."""
    for path in files_in(directory):
        with suppress(FileNotFoundError):
            yield read_lines(path, 0).noted


def forget(directory: Path, lost: Sequence[Noted]) -> None:
    """Write down that these facts are known to be lost; files that note them may be in use, so they stand apart."""
    directory.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(directory / _FORGOTTEN, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        file.write(written(lost))
        file.flush()
        os.fsync(file.fileno())


def forgotten_in(directory: Path) -> frozenset[str]:
    """Return the ids of the messages whose loss is known."""
    try:
        return frozenset(one.message_id for one in read_lines(directory / _FORGOTTEN, 0).noted)
    except FileNotFoundError:
        return frozenset()


def read_lines(path: Path, start: int) -> Lines:
    """Read a file from a place on; a line that is not whole yet, or was cut, is left out."""
    with path.open("rb") as file:
        inode = os.fstat(file.fileno()).st_ino
        file.seek(start)
        text = file.read()
    whole = text.rfind(b"\n") + 1
    found = []
    for line in text[:whole].splitlines():
        with suppress(msgspec.MsgspecError):
            found.append(_decode(line))
    return Lines(found, start + whole, start + len(text), inode)


@contextmanager
def settling(directory: Path) -> Iterator[bool]:
    """Be the one who lets lines go for the time of the block; gives whether nobody else is."""
    lock = os.open(directory / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        alone = _locked(lock)
        if alone:
            _sweep(directory)
        yield alone
    finally:
        os.close(lock)


def keep_only(path: Path, needed: Sequence[Noted], size: int) -> bool:
    """Let a file go of all lines but those needed, the file itself if there are none; tells whether that was done.

    It is not while the file is being written, or when it is no longer of the size at which it was read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not _locked(file) or os.fstat(file).st_size != size:
            return False
        reach("noted.before_drop")
        if needed:
            _replace(path, written(needed))
        else:
            path.unlink(missing_ok=True)
        reach("noted.after_drop")
    finally:
        os.close(file)
    return True


def _replace(path: Path, lines: bytes) -> None:
    anew = path.with_suffix(".anew")
    with anew.open("wb") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
    reach("noted.before_replace")
    anew.replace(path)


def _sweep(directory: Path) -> None:
    """Remove what processes left that were killed while they made a file."""
    for left in [*directory.glob("facts-*.making"), *directory.glob("facts-*.anew")]:
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
