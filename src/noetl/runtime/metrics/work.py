"""The metrics of work: recorded events go in, counts of executions, commands, frames and rows come out.

Each process counts what it recorded itself; nothing is counted twice where several record.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from noetl.model.catalogue import BY_NAME, ENDING
from noetl.model.catalogue.rows import types_of_attempts
from noetl.model.event import Draft
from noetl.model.event_type import AttemptWord
from noetl.model.ids import snowflake_time

StageKind = Literal["loop", "fanout", "reduce"]
EndStatus = Literal["COMPLETED", "FAILED", "CANCELLED"]

WINDOW_SECONDS: Final = 300.0
_WINDOW_FRAMES: Final = 5_000
_EXECUTION_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)

_WORDS: Final[dict[AttemptWord, str]] = {"begun": "dispatched", "completed": "committed", "failed": "failed"}
_FRAME_WORDS: Final = {
    name: (counted, "loop" if BY_NAME[name].aggregate == "frame" else "fanout")
    for word, counted in _WORDS.items()
    for name in types_of_attempts(word, at="frame")
}
_GIVEN_UP: Final = frozenset(types_of_attempts("abandoned", "attempt_failed", at="frame"))
_MAY_SWALLOW: Final = frozenset({"command.completed", "command.failed", "step.exited"})
"""The events whose errors add up to what an execution's status shows."""


class WorkMetrics:
    """The series of work, all of them there from the start."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._taken: deque[tuple[float, float]] = deque(maxlen=_WINDOW_FRAMES)
        self._leased: dict[int | None, float] = {}
        self._started = Counter("noetl_executions_started", "Executions started.", registry=registry)
        self._ended = Counter("noetl_executions_ended", "Executions ended, by how.", ["status"], registry=registry)
        self._duration = Histogram(
            "noetl_execution_duration_seconds", "Seconds from an execution's request to its end, by how it ended.",
            ["status"], buckets=_EXECUTION_BUCKETS, registry=registry,
        )  # fmt: skip
        self._swallowed = Counter(
            "noetl_swallowed_errors", "Errors that executions went on in spite of.", registry=registry
        )
        self._command_events = Counter(
            "noetl_command_events", "Events about commands, of whatever kind.", registry=registry
        )
        self._commands = {
            word: Counter(f"noetl_commands_{word}", f"Commands {word}.", registry=registry)
            for word in ("issued", "claimed", "completed", "failed")
        }
        self._frames = {
            word: Counter(
                f"noetl_frames_{word}",
                f"Frames {word}, by kind of stage; a reduce is one.",
                ["stage_kind"],
                registry=registry,
            )
            for word in ("dispatched", "committed", "failed")
        }
        self._rows = {
            word: Counter(f"noetl_rows_{word}", f"Rows {word} in frames that have ended.", registry=registry)
            for word in ("done", "failed")
        }
        p95 = Gauge(
            "frame_p95_lease_duration", "Seconds within which 95 of 100 frames ended, over five minutes.",
            registry=registry,
        )  # fmt: skip
        p95.set_function(self._p95)
        for status in get_args(EndStatus):
            self._ended.labels(status)
            self._duration.labels(status)
        for frames in self._frames.values():
            for kind in get_args(StageKind):
                frames.labels(kind)

    def observe(self, draft: Draft) -> None:
        """Count what an event says."""
        kind = draft.event_type
        if kind.startswith("command."):
            self._command_events.inc()
            word = kind.removeprefix("command.")
            if word in self._commands:
                self._commands[word].inc()
        elif kind in _FRAME_WORDS:
            self._frame(draft, *_FRAME_WORDS[kind])
        elif kind in _GIVEN_UP:
            self._note_end(draft)
        elif kind in ("stage.opened", "stage.closed"):
            self._reduce(draft)
        elif kind == "execution.requested":
            self._started.inc()
        elif kind in ENDING and draft.stream_id.startswith("execution/"):  # a query has an end, but is no execution
            status = kind.rpartition(".")[2].upper()
            self._ended.labels(status).inc()
            # An execution's id is minted with its request.
            seconds = (draft.event_time - snowflake_time(draft.execution_id)).total_seconds()
            self._duration.labels(status).observe(max(0.0, seconds))
        if kind in _MAY_SWALLOW and (swallowed := draft.meta.get("swallowed")):
            self._swallowed.inc(swallowed)

    def _frame(self, draft: Draft, word: str, stage_kind: str) -> None:
        self._frames[word].labels(stage_kind).inc()
        if word == "dispatched":
            if len(self._leased) < _WINDOW_FRAMES:
                self._leased[draft.frame_id] = self._clock()
            return
        rows = draft.meta["row_count"]
        failed = rows if word == "failed" else draft.meta.get("failed_count", 0)
        self._rows["done"].inc(rows - failed)
        self._rows["failed"].inc(failed)
        self._note_end(draft)

    def _reduce(self, draft: Draft) -> None:
        """Count the one piece of work that a reduce stage has: a command of its own, or none where nothing is to do."""
        if draft.event_type == "stage.opened":
            word = "dispatched" if draft.meta["kind"] == "reduce" else None
        else:
            # The stages of loops say when they close which loop they are of, and count their frames.
            word = None if draft.loop_id is not None else "failed" if draft.status == "failed" else "committed"
        if word is not None:
            self._frames[word].labels("reduce").inc()

    def _note_end(self, draft: Draft) -> None:
        leased = self._leased.pop(draft.frame_id, None)
        if leased is not None:
            self._taken.append((self._clock(), self._clock() - leased))

    def _p95(self) -> float:
        since = self._clock() - WINDOW_SECONDS
        seconds = sorted(taken for at, taken in self._taken if at >= since)
        return seconds[math.ceil(len(seconds) * 0.95) - 1] if seconds else 0.0
