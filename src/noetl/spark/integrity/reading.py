"""Says in words of ours what goes wrong while a file of the lake is read: no reader's own error reaches a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from obstore.exceptions import BaseError

from noetl.errors import Damaged, Unavailable
from noetl.spark.integrity.checking import REMEDY


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Refuse a file that is gone or cannot be decoded; a store that does not answer is another matter."""
    try:
        yield
    except FileNotFoundError as problem:
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


def _unreadable(path: str, problem: Exception) -> Damaged:
    told = (str(problem).strip() or type(problem).__name__).splitlines()[0].rstrip(".")
    return Damaged(f"the file {path} of the lake cannot be read: {told}", hint=REMEDY, path=path)


def _unanswered(path: str, problem: Exception) -> Unavailable:
    told = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    return Unavailable(
        f"the lake does not answer for {path}: {told}", hint="look at the settings of the lake: `noetl config show`"
    )
