"""Events of an execution go in, in their order; lanes of spans come out: who worked on what, from when to when, and how it ended.

Where an execution has frames, they are shown by stage and worker; otherwise its commands are, by step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from noetl.engine.dispatch.why.story import COMMITTED, DISPATCHED, FRAME_FAILED, LOST, TRIED
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.rows import types_of_attempts
from noetl.model.event import Event

Outcome = Literal["done", "done with failed rows", "failed", "lost", "handed back", "stopped", "running"]
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "done", "done with failed rows", "failed", "lost", "handed back", "stopped", "running",
)  # fmt: skip
_COMMAND_ENDS: Final = types_of_attempts("completed", "failed", "attempt_failed", "abandoned", "returned", at="command")


@dataclass
class Span:
    """One attempt at a frame or a command."""

    step: str
    worker: str
    attempt: int
    rows: int | None
    began: datetime
    ended: datetime | None = None
    outcome: Outcome = "running"


@dataclass
class Lane:
    """Attempts that one worker made for one stage or step, none of which overlap."""

    step: str
    worker: str
    spans: list[Span] = field(default_factory=list)


@dataclass
class Timeline:
    """What is drawn of an execution."""

    execution_id: int
    title: str
    what: Literal["frames", "commands"]
    began: datetime
    ended: datetime
    lanes: list[Lane]

    @property
    def spans(self) -> list[Span]:
        """All attempts."""
        return [span for lane in self.lanes for span in lane.spans]


class Watching:
    """Takes an execution's events one after another and keeps what a timeline needs."""

    def __init__(self, execution_id: int) -> None:
        self._execution_id = execution_id
        self._path = ""
        self._status = "RUNNING"
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._steps: dict[str, str] = {}
        self._open: dict[tuple[str, object], Span] = {}
        self._frames: list[Span] = []
        self._commands: list[Span] = []

    def add(self, event: Event) -> None:
        """Take the next event."""
        self._first = self._first or event.event_time
        self._last = event.event_time if self._last is None else max(self._last, event.event_time)
        kind = event.event_type
        if kind == "execution.requested":
            self._path = str(event.meta.get("path") or "")
        elif kind in ENDING:
            self._end(event)
        elif event.frame_id is not None:
            self._frame(event, ("frame", event.frame_id))
        elif event.command_id is not None:
            self._command(event, ("command", event.command_id))

    def timeline(self) -> Timeline | None:
        """Return what is to be drawn; None if nobody has worked on the execution yet."""
        shown, what = (self._frames, "frames") if self._frames else (self._commands, "commands")
        if not shown or self._first is None or self._last is None:
            return None
        title = f"{self._path or 'execution'} · {self._execution_id} · {self._status}"
        began = min(span.began for span in shown)
        return Timeline(
            self._execution_id, title, "frames" if what == "frames" else "commands", began, self._last, _lanes(shown)
        )

    def _end(self, event: Event) -> None:
        self._status = event.event_type.rpartition(".")[2].upper()
        for span in self._open.values():
            span.ended, span.outcome = event.event_time, "stopped"
        self._open.clear()

    def _frame(self, event: Event, key: tuple[str, object]) -> None:
        kind, meta = event.event_type, event.meta
        if kind in DISPATCHED:
            self._begin(self._frames, event, key, event.node_name or "", meta.get("row_count"))
        elif kind in COMMITTED:
            self._finish(event, key, "done with failed rows" if meta.get("failed_count") else "done")
        elif kind in FRAME_FAILED | TRIED:
            self._finish(event, key, "failed")
        elif kind in LOST:
            self._finish(event, key, "lost")

    def _command(self, event: Event, key: tuple[str, object]) -> None:
        kind = event.event_type
        if kind == "command.issued":
            self._steps[event.command_id or ""] = event.node_name or ""
        if kind == "command.claimed" or (kind == "command.issued" and "worker" in event.meta):
            self._begin(self._commands, event, key, self._steps.get(event.command_id or "", ""), None)
        elif kind in _COMMAND_ENDS:
            self._finish(event, key, _ended_as(event))

    def _begin(self, spans: list[Span], event: Event, key: tuple[str, object], step: str, rows: int | None) -> None:
        span = Span(step, str(event.meta.get("worker", "")), int(event.meta.get("attempt", 1)), rows, event.event_time)
        self._open[key] = span
        spans.append(span)

    def _finish(self, event: Event, key: tuple[str, object], outcome: Outcome) -> None:
        span = self._open.pop(key, None)
        if span is not None:
            span.ended, span.outcome = event.event_time, outcome


def _ended_as(event: Event) -> Outcome:
    if event.event_type == "command.completed":
        return "done"
    if event.event_type == "command.abandoned":
        return "lost"
    if event.event_type == "command.returned":
        return "handed back"
    return "stopped" if event.status == "cancelled" else "failed"


def _lanes(spans: Iterable[Span]) -> list[Lane]:
    """Lay spans out: steps in the order they began, workers within them, and beside each other what overlaps."""
    groups: dict[str, dict[str, list[Lane]]] = {}
    for span in sorted(spans, key=lambda one: one.began):
        lanes = groups.setdefault(span.step, {}).setdefault(span.worker, [])
        free = next((lane for lane in lanes if _is_free(lane, span)), None)
        if free is None:
            free = Lane(span.step, span.worker)
            lanes.append(free)
        free.spans.append(span)
    return [lane for workers in groups.values() for lanes in workers.values() for lane in lanes]


def _is_free(lane: Lane, span: Span) -> bool:
    ended = lane.spans[-1].ended
    return ended is not None and ended <= span.began
