"""Says in words of ours why a file of the lake cannot be read, whether Arrow or Spark decodes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from obstore.exceptions import BaseError

from noetl.errors import Damaged, Unavailable
from noetl.spark.lake.storage import Lake

REMEDY: Final = (
    "`noetl datasets verify` names every damaged file and what mends it: `noetl datasets repair` where a task can build it"
    " again, `noetl lake rebuild` for the lake of events, or else a copy"
)
_NO_DATA: Final = frozenset({"lost+found"})
"""What an empty disk has."""


@contextmanager
def reading(path: str, lake: Lake) -> Iterator[None]:
    """Refuse a file that is gone or cannot be decoded; a store that does not answer, or is not there, is another matter."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as problem:
        refuse_unmounted(lake)
        raise Damaged(f"the file {path} is not in the lake any more", hint=REMEDY, path=path) from problem
    except BaseError as problem:
        raise _unanswered(path, problem) from problem
    except pa.ArrowException as problem:
        raise _unreadable(path, problem) from problem
    except OSError as problem:
        # Arrow raises OSError without a number for pages that fail their checksum or cannot be decompressed.
        if problem.errno is not None:
            raise _unanswered(path, problem) from problem
        raise _unreadable(path, problem) from problem


def refuse_unmounted(lake: Lake) -> None:
    """Say that a lake is away, not its files: a directory that is missing, or has nothing at all, where files are named."""
    directory = lake.directory
    if directory is None:
        return
    try:
        there = any(one.name not in _NO_DATA and not one.name.startswith(".") for one in directory.iterdir())
    except OSError:
        there = False
    if not there:
        raise Unavailable(
            f"the lake {directory} is missing or empty, and manifests name files in it",
            hint="mount it, or look at the settings of the lake: `noetl config show`; nothing is built again meanwhile",
        )


def _unreadable(path: str, problem: Exception) -> Damaged:
    told = (str(problem).strip() or type(problem).__name__).splitlines()[0].rstrip(".")
    return Damaged(f"the file {path} of the lake cannot be read: {told}", hint=REMEDY, path=path)


def _unanswered(path: str, problem: Exception) -> Unavailable:
    told = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    return Unavailable(
        f"the lake does not answer for {path}: {told}", hint="look at the settings of the lake: `noetl config show`"
    )


_REFUSED: Final = re.compile(rf"{Damaged.__module__}\.{Damaged.__qualname__}: (.+)")
_READ_FILE: Final = re.compile(r"reading file (\S+\.parquet)")
_UNREADABLE: Final = (
    "CRC checksum verification failed",
    "ChecksumException",
    "ParquetDecodingException",
    "is not a Parquet file",
    "Expected magic number at tail",
)
_MOST_CAUSES: Final = 20


def damage_told(error: BaseException) -> str | None:
    """Say which file is damaged, if that is why a job failed; an error of an executor is known by its text alone."""
    text = _whole_text(error)
    told = _REFUSED.search(text)
    if told is not None:
        return told[1]
    if not any(mark in text for mark in _UNREADABLE):
        return None
    file = _READ_FILE.search(text)
    what = f"the file {file[1]}" if file else "a file of an input"
    return f"{what} of the lake is not what was committed: a page fails its checksum or cannot be decoded; {REMEDY}"


def _whole_text(error: BaseException) -> str:
    """Return an error with its causes: Spark says in the first line only that a file could not be read."""
    found: list[str] = []
    cause: Any = error
    while cause is not None and len(found) < _MOST_CAUSES:
        found += [str(cause), str(getattr(cause, "_stackTrace", None) or "")]
        cause = getattr(cause, "_cause", None) or getattr(cause, "__cause__", None)
    return "\n".join(found)
