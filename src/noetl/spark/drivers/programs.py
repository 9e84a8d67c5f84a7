"""Programs in the driver: functions of ours that run on Spark for as long as they like, and talk with their worker.

A program is `function(session, call) -> dict`; what it returns is the errand's result. It knows no database: what must
be decided or recorded it asks its worker, with `call.ask`, and waits. Nothing but functions under `noetl.spark` is run.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import Conflict, InputError
from noetl.spark.drivers.ongoing_work import ONGOING
from noetl.spark.drivers.protocol import Answer, Asks, FromDriver, RunProgram
from noetl.spark.lake.storage import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Refused(Conflict):
    """The worker refused what a program asked for, with its reason."""


@dataclass(frozen=True)
class Call:
    """One run of a program: what it was told, the lake it writes to, and the line to its worker."""

    tag: str
    arguments: dict[str, Any]
    reach: dict[str, Any]
    lake: Lake
    ask: Callable[[dict[str, Any]], dict[str, Any]]
    """Ask the worker and wait for its answer; raises `Refused`. Callable from any thread of the driver."""

    def should_stop(self) -> bool:
        """Whether the program should end soon, with what it has."""
        return ONGOING.is_asked(self.tag)


class Programs:
    """The programs of this process and the answers they wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Answer]] = {}

    def run(
        self, session: SparkSession, errand: RunProgram, lake: Lake, send: Callable[[FromDriver], None]
    ) -> dict[str, Any]:
        """Run a program to its end and return its result."""

        def ask(question: dict[str, Any]) -> dict[str, Any]:
            return self._asked(errand.tag, question, send)

        call = Call(errand.tag, errand.arguments, errand.reach, lake, ask)
        result: dict[str, Any] = _function(errand.program)(session, call)
        return result

    def take(self, answer: Answer) -> None:
        """Hand an answer to whoever waits for it."""
        with self._lock:
            waiting = self._waiting.pop(answer.number, None)
        if waiting is not None:
            waiting.put(answer)

    def _asked(self, tag: str, question: dict[str, Any], send: Callable[[FromDriver], None]) -> dict[str, Any]:
        number = next(self._numbers)
        waiting: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._lock:
            self._waiting[number] = waiting
        send(Asks(job_tag=tag, number=number, question=question))
        # In small waits: an interrupt raises between them, and never inside one.
        while True:
            try:
                answer = waiting.get(timeout=_WAIT_SECONDS)
            except queue.Empty:
                continue
            if answer.refusal is not None:
                raise Refused(answer.refusal)
            return answer.answer


_WAIT_SECONDS: Final = 0.5

PROGRAMS: Final = Programs()
"""Those of this driver process."""


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    if not module.startswith("noetl.spark."):
        raise InputError(f"{place!r} is no program: programs are functions under noetl.spark")
    return getattr(import_module(module), name)
