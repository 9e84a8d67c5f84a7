"""What a job prints and what Spark says about it, collected per work: head and tail within a bound.

Standard output of the driver process is a stream that asks who prints; what belongs to no work goes to the driver's log.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Final

LIMIT: Final = 1 << 20
"""Characters kept of one work's log; what is left out stands between head and tail, counted."""

_printing: ContextVar[tuple[BoundedLog, ...]] = ContextVar("printing", default=())


class BoundedLog:
    """Text that keeps its beginning and its end."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._half = limit // 2
        self._head = ""
        self._tail = ""
        self._lost = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Add text."""
        with self._lock:
            room = self._half - len(self._head)
            self._head += text[:room]
            self._tail += text[room:]
            # Cut only when it has doubled, so that many small writes do not copy the tail each time.
            if len(self._tail) > 2 * self._half:
                self._cut()

    def text(self) -> str:
        """Return what is kept."""
        with self._lock:
            self._cut()
            gap = f"\n[{self._lost} characters left out]\n" if self._lost else ""
            return self._head + gap + self._tail

    def _cut(self) -> None:
        over = max(0, len(self._tail) - self._half)
        self._lost += over
        self._tail = self._tail[over:]


@contextmanager
def printed_to(*logs: BoundedLog) -> Iterator[None]:
    """Collect what the block prints; threads that it starts print to the same logs."""
    token = _printing.set(logs)
    try:
        yield
    finally:
        _printing.reset(token)


class PrintStream(io.TextIOBase):
    """Stands in place of `sys.stdout` and `sys.stderr`: writes to the log of whoever prints."""

    def __init__(self, otherwise: Any) -> None:
        self._otherwise = otherwise

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What text is encoded as where it is."""
        return "utf-8"

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str, /) -> int:
        """Give the text to the works that the caller works for."""
        logs = _printing.get()
        for log in logs:
            log.write(text)
        if not logs:
            self._otherwise.write(text)
            self._otherwise.flush()
        return len(text)

    def fileno(self) -> int:
        """The descriptor of the driver's own log, for those who write past Python."""
        return int(self._otherwise.fileno())


def take_over_output() -> None:
    """Collect prints per work from now on, in this process and for all threads it starts."""
    sys.stdout = PrintStream(sys.__stdout__)
    sys.stderr = PrintStream(sys.__stderr__)
    threading.Thread.start = _start_in_context  # type: ignore[method-assign,assignment]


_start = threading.Thread.start


def _start_in_context(thread: threading.Thread) -> None:
    """Start a thread that knows for whom its starter works; Python hands this on only from 3.14."""
    context, run = copy_context(), thread.run
    thread.run = lambda: context.run(run)  # type: ignore[method-assign]
    _start(thread)


class SparkLog:
    """Spark's log file of this driver, read for the lines of one marker."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def position(self) -> int:
        """Where the log ends now."""
        return self._path.stat().st_size if self._path.exists() else 0

    def lines(self, markers: Iterable[str], since: int) -> str:
        """Return the entries after a position that carry one of the markers, without the marker."""
        if not self._path.exists():
            return ""
        wanted = {f"<{marker}>" for marker in markers}
        kept: list[str] = []
        ours = False
        with self._path.open(encoding="utf-8", errors="replace") as file:
            file.seek(since)
            for line in file:
                if line[:2] == "20" and line[23:24] == "Z":
                    found = next((marker for marker in wanted if marker in line[:96]), None)
                    ours = found is not None
                    line = line.replace(f" {found}", "", 1)
                if ours:
                    kept.append(line)
        return "".join(kept)


def masked(text: str, secrets: Iterable[Any]) -> str:
    """Blot out the secrets a work was given, wherever its code printed them."""
    for secret in sorted(set(_texts(secrets)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            # A shorter one would blot out half of every log and is no secret.
            if len(value) >= 4:
                yield value
        elif isinstance(value, dict):
            yield from _texts(value.values())
        elif isinstance(value, list | tuple):
            yield from _texts(value)
