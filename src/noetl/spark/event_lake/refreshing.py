"""Facts follow a lake that follows the ledger: a thread beside the batches refreshes them from time to time.

It never holds a batch back. What goes wrong in it is printed, and tried again the next time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from noetl.model.stream import Scope
from noetl.spark.event_lake.facts import refresh
from noetl.spark.programs import Call
from noetl.spark.working import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_SECONDS: Final = 0.5


@contextmanager
def following_facts(session: SparkSession, call: Call, scope: Scope, every_seconds: float | None) -> Iterator[None]:
    """Refresh the facts every so often for the time of the block; not at all where no time is given."""
    if every_seconds is None:
        yield
        return
    ended = threading.Event()
    own = session.newSession()

    def follow() -> None:
        while not ended.wait(every_seconds):
            with working(own, [call.tag]):
                try:
                    refresh(own, call, scope, [])
                except Exception as problem:
                    print(f"the facts could not be refreshed: {problem}")  # noqa: T201 - goes to the program's log

    thread = threading.Thread(target=follow, name=f"{call.tag}-facts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # In small waits: an interrupt raises between them, and never inside one.
        while thread.is_alive():
            thread.join(_WAIT_SECONDS)
