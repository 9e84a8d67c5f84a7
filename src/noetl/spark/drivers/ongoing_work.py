"""For whom a thread of the driver works: its Spark jobs carry the works' tags, its prints go to their logs.

`working` is entered by the driver for a whole run, and by whoever runs one work of it in a thread of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from noetl.spark.drivers.logs import BoundedLog, printed_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER: Final = "mdc.noetl"
"""The local property that Spark puts before each log line of a task."""
_TAGS: Final = "spark.job.tags"
_POOL: Final = "spark.scheduler.pool"
_GRACE_SECONDS: Final = 1.0
"""How long an interrupted Spark job has to end by itself before its Python thread is interrupted too."""


class Interrupted(BaseException):
    """The work was told to stop."""


class OngoingWork:
    """One work that has not ended."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.log = BoundedLog()
        self.markers: list[str] = []
        self.interrupted_at: float | None = None
        self.asked = False

    @property
    def is_interrupted(self) -> bool:
        """Whether it was told to stop."""
        return self.interrupted_at is not None


class Ongoing:
    """The works of this process that have not ended: who is interrupted, which threads and log markers are whose."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[str, OngoingWork] = {}
        self._threads: dict[int, tuple[str, ...]] = {}
        self._numbers = itertools.count(1)
        self._news = threading.Event()

    def begin(self, tag: str, pool: str) -> OngoingWork:
        """Know a work from now on; its jobs share a pool with those of its organization."""
        with self._lock:
            return self._works.setdefault(tag, OngoingWork(pool))

    def end(self, tag: str) -> None:
        """Forget a work."""
        with self._lock:
            self._works.pop(tag, None)

    def interrupt(self, tag: str) -> bool:
        """Mark a work as interrupted; false when there is none of that tag."""
        with self._lock:
            work = self._works.get(tag)
            if work is not None and work.interrupted_at is None:
                work.interrupted_at = time.monotonic()
                self._news.set()
            return work is not None

    def ask_to_stop(self, tag: str) -> None:
        """Note that a work should end soon by itself."""
        with self._lock:
            if tag in self._works:
                self._works[tag].asked = True

    def is_asked(self, tag: str) -> bool:
        """Whether a work should end soon, or at once."""
        work = self._works.get(tag)
        return work is not None and (work.asked or work.is_interrupted)

    def wait_for_interrupt(self, again: float) -> None:
        """Wait until a work is interrupted, or a while if some are already and have not ended."""
        self._news.wait(again if self.interrupted() else None)
        self._news.clear()

    def interrupted(self) -> tuple[str, ...]:
        """The works that were told to stop and have not ended."""
        with self._lock:
            return tuple(tag for tag, work in self._works.items() if work.is_interrupted)

    def is_interrupted(self, tag: str) -> bool:
        """Whether a work was told to stop."""
        work = self._works.get(tag)
        return work is not None and work.is_interrupted

    def log(self, tag: str) -> tuple[str, tuple[str, ...]]:
        """What a work printed, and the markers of its lines in Spark's log."""
        with self._lock:
            work = self._works.get(tag)
            return (work.log.text(), tuple(work.markers)) if work else ("", ())

    def pool(self, tags: Sequence[str]) -> str | None:
        """The pool in which the works' jobs run."""
        with self._lock:
            return next((work.pool or None for tag, work in self._works.items() if tag in tags), None)

    def raise_in_threads(self) -> None:
        """Raise `Interrupted`, once, in threads that work for interrupted works alone: some never call Spark."""
        late = time.monotonic() - _GRACE_SECONDS
        with self._lock:
            stopped = {tag for tag, one in self._works.items() if one.interrupted_at and one.interrupted_at < late}
            for thread, tags in list(self._threads.items()):
                if tags and stopped.issuperset(tags):
                    self._threads[thread] = ()
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Interrupted))

    @contextmanager
    def thread(self, tags: Sequence[str]) -> Iterator[str]:
        """Let the calling thread work for these works; gives the marker of its log lines."""
        marker = f"work-{next(self._numbers)}"
        mine = threading.get_ident()
        with self._lock:
            before = self._threads.get(mine)
            self._threads[mine] = tuple(tags)
            works = [self._works[tag] for tag in tags if tag in self._works]
            for work in works:
                work.markers.append(marker)
        try:
            with printed_to(*(work.log for work in works)):
                yield marker
        finally:
            with self._lock:
                self._threads.pop(mine, None)
                if before is not None:
                    self._threads[mine] = before


ONGOING: Final = Ongoing()
"""Those of this driver process."""


@contextmanager
def working(session: SparkSession, tags: Sequence[str]) -> Iterator[None]:
    """Let what the calling thread does belong to these works alone until the block ends."""
    with ONGOING.thread(tags) as marker:
        if tags and all(map(ONGOING.is_interrupted, tags)):
            raise Interrupted
        restore = _tag(session, tags, marker)
        try:
            yield
        finally:
            restore()


def interrupted(tag: str) -> bool:
    """Whether the work of a tag was told to stop: its failure is then no failure."""
    return ONGOING.is_interrupted(tag)


def stop_asked(tag: str) -> bool:
    """Whether the work of a tag should end soon, with what it has; where nobody works for it, it need not."""
    return ONGOING.is_asked(tag)


def is_connect(session: Any) -> bool:
    """Whether a session is one of a Spark Connect server."""
    return not hasattr(session, "_jsparkSession")


def _tag(session: Any, tags: Sequence[str], marker: str) -> Callable[[], object]:
    """Tag the thread's jobs and return what takes the tags off and puts back those that were there."""
    if is_connect(session):
        before = session.getTags()
        session.clearTags()
        for tag in tags:
            session.addTag(tag)
        return lambda: (session.clearTags(), *map(session.addTag, before))
    context = session.sparkContext
    diagnostics = context._jvm.org.slf4j.MDC
    names = (_TAGS, MARKER, _POOL, "spark.job.interruptOnCancel")
    old = tuple(map(context.getLocalProperty, names))

    def put(values: Sequence[str | None]) -> None:
        for name, value in zip(names, values, strict=True):
            context.setLocalProperty(name, value)
        # Local properties reach the tasks' log lines; this one is for lines of the driver's own thread.
        diagnostics.put(MARKER, values[1]) if values[1] else diagnostics.remove(MARKER)

    put((",".join(tags) or None, marker, ONGOING.pool(tags), "true"))
    return lambda: put(old)
