"""Whether a job failed because an input is damaged: an error of Spark goes in, a sentence that names the file comes out."""

from __future__ import annotations

import re
from typing import Any, Final

from noetl.errors import Damaged
from noetl.spark.integrity.reading import REMEDY

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
