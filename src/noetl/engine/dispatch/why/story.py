"""What the events of one execution tell, by step, command, stage and frame, and sentences with their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.loops.results import RowProblem, row_problems
from noetl.engine.plan.planned import Plan
from noetl.engine.plan.state import State, evolve
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.rows import types_moving_lease, types_of_attempts
from noetl.model.event import Event, time_text
from noetl.model.stream import execution_stream

LOST: Final = frozenset({*types_of_attempts("abandoned", at="command"), *types_of_attempts("abandoned", at="frame")})
TRIED: Final = frozenset(
    {*types_of_attempts("attempt_failed", at="command"), *types_of_attempts("attempt_failed", at="frame")}
)
DISPATCHED: Final = frozenset(types_of_attempts("begun", at="frame"))
COMMITTED: Final = frozenset(types_of_attempts("completed", at="frame"))
FRAME_FAILED: Final = frozenset(types_of_attempts("failed", at="frame"))
_COMMAND_ENDED: Final = frozenset(types_of_attempts("completed", "failed", at="command"))
_COMMAND_LEASED: Final = frozenset(types_moving_lease("command")) - _COMMAND_ENDED
KEPT_PROBLEMS = 5
"""Rows that failed, of each stage: the first of them tell what is wrong with most."""


@dataclass
class Command:
    """One command: how it was issued, who had it, how it ended."""

    issued: Event
    leases: list[Event] = field(default_factory=list)
    """Everything that happened to its lease, in order."""
    stalls: list[Event] = field(default_factory=list)
    """When its holders had to wait for a part of the platform, and when that answered again."""
    ended: Event | None = None

    @property
    def stalled(self) -> Event | None:
        """The event by which its holder waits for a part of the platform now, if it does."""
        last, held = self.stalls[-1] if self.stalls else None, self.holder
        if last is None or held is None or last.event_type != "command.stalled":
            return None
        return last if last.meta["attempt"] == held.meta.get("attempt", 1) else None

    @property
    def holder(self) -> Event | None:
        """The event by which somebody holds it now, if anybody does."""
        last = self.leases[-1] if self.leases else self.issued
        return last if self.ended is None and "worker" in last.meta and last.event_type not in LOST | TRIED else None


@dataclass
class Run:
    """One activation of a step."""

    number: int
    began: Event
    """That it was entered, or skipped."""
    arrivals: list[tuple[Event, int]]
    """The exits that led here, each with the number of its arc."""
    commands: list[Command] = field(default_factory=list)
    exited: Event | None = None


@dataclass
class Stage:
    """What came of a stage's frames so far."""

    counts: Counter[str] = field(default_factory=Counter)
    """frames, committed, failed, lost, tried; rows and failed_rows."""
    open: dict[int, Event] = field(default_factory=dict)
    """The last event of every frame that has not ended."""
    firsts: dict[int, int] = field(default_factory=dict)
    """The first row of each of these."""
    problems: list[tuple[RowProblem, Event]] = field(default_factory=list)
    """The first rows that failed, in their order, with the events that say so."""


class Story:
    """One execution's events, told."""

    def __init__(self, execution_id: int, frame_id: int | None = None) -> None:
        self.execution_id = execution_id
        self.state = State(execution_id=execution_id)
        self.requested: Event | None = None
        self.ended: Event | None = None
        self.runs: dict[str, list[Run]] = {}
        self.commands: dict[str, Command] = {}
        self.stages: dict[int, Stage] = {}
        self.waiting: dict[str, list[tuple[Event, int]]] = {}
        """By step, the exits that lead to it and that it has not begun for."""
        self.frame: list[Event] = []
        """The events of the frame that was asked for."""
        self.last: Event | None = None
        self._frame_id = frame_id

    def add(self, event: Event) -> None:
        """Take the next event."""
        self.last = event
        kind = event.event_type
        if event.stream_id == execution_stream(event.stream.scope, self.execution_id).stream_id:
            self.state = evolve(self.state, event)
        if event.frame_id is not None:
            self._add_frame(event, event.frame_id)
        elif kind == "execution.requested":
            self.requested = event
        elif kind in ENDING:
            self.ended = event
        elif kind in ("step.entered", "step.skipped"):
            step = event.node_name or ""
            arrivals = self.waiting.pop(step, [])
            self.runs.setdefault(step, []).append(Run(event.meta.get("run", 1), event, arrivals))
        elif kind == "step.exited":
            self._add_exit(event)
        elif event.command_id is not None:
            self._add_command(event, event.command_id)

    def _add_exit(self, event: Event) -> None:
        if runs := self.runs.get(event.node_name or ""):
            runs[-1].exited = event
        if event.meta.get("fails"):
            self.waiting.clear()
        for arc, target in event.meta.get("taken", ()):
            self.waiting.setdefault(target, []).append((event, arc))

    def _add_command(self, event: Event, command_id: str) -> None:
        if event.event_type == "command.issued":
            command = self.commands[command_id] = Command(event)
            if runs := self.runs.get(event.node_name or ""):
                runs[-1].commands.append(command)
        elif (known := self.commands.get(command_id)) is None:
            return
        elif event.event_type in _COMMAND_ENDED:
            known.ended = event
        elif event.event_type in _COMMAND_LEASED:
            known.leases.append(event)
        elif event.event_type in ("command.stalled", "command.resumed"):
            known.stalls.append(event)

    def _add_frame(self, event: Event, frame_id: int) -> None:
        if frame_id == self._frame_id:
            self.frame.append(event)
        stage = self.stages.setdefault(event.stage_id or 0, Stage())
        kind, rows = event.event_type, event.meta.get("row_count", 0)
        if kind in DISPATCHED:
            stage.counts["frames"] += event.meta.get("attempt") == 1
            stage.firsts[frame_id] = event.current_index or 0
        stage.open[frame_id] = event
        stage.counts["lost"] += kind in LOST
        stage.counts["tried"] += kind in TRIED
        if kind in COMMITTED:
            failed = event.meta.get("failed_count", 0)
            stage.counts.update({"committed": 1, "rows": rows - failed, "failed_rows": failed})
        elif kind in FRAME_FAILED:
            stage.counts.update({"failed": 1, "failed_rows": rows})
        if kind in COMMITTED | FRAME_FAILED:
            del stage.open[frame_id]
            first = stage.firsts.pop(frame_id, 0)
            found = row_problems(frame_id, first, rows, event.result, event.error)
            stage.problems += [(problem, event) for problem in found]
            stage.problems.sort(key=itemgetter(0))
            del stage.problems[KEPT_PROBLEMS:]


class Sentence(msgspec.Struct, frozen=True):
    """Something that is so, and the events that say so. `topic` is one word for programs."""

    topic: str
    text: str
    event_ids: tuple[int, ...] = ()


def sentence(topic: str, text: str, *events: Event | None) -> Sentence:
    """Make a sentence with its evidence, each event once."""
    ids = (event.event_id for event in events if event is not None)
    return Sentence(topic, text, tuple(dict.fromkeys(ids)))


def counted(number: int, noun: str) -> str:
    """Say how many of something."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def at(event: Event) -> str:
    """Say when something happened."""
    return time_text(event.event_time).replace("T", " ")[:19] + " UTC"


def failed_rows(story: Story, step: str, run: Run) -> Iterator[Sentence]:
    """Say which rows of a loop failed in a run of its step, and why, the first few of them."""
    stage = story.stages.get(run.began.stage_id or 0)
    if stage is None:
        return
    for problem, event in stage.problems:
        text = f"{problem.place} of step {step} failed in frame {problem.frame_id}: {problem.text}."
        yield sentence("row", text, event)
    if left := stage.counts["failed_rows"] - sum(problem.rows for problem, _ in stage.problems):
        text = f"{left} more of the rows of step {step} failed; `noetl why EXECUTION FRAME` tells of a frame."
        yield sentence("row", text, run.exited or run.began)


def arc_words(plan: Plan | None, step: str, number: int) -> str:
    """Name an arc, with its target and condition where the playbook is known."""
    arcs: tuple[Any, ...] = ()
    if plan is not None and step in plan.steps and (router := plan.step(step).source.router) is not None:
        arcs = router.arcs
    if number >= len(arcs):
        return f"arc {number}"
    arc = arcs[number]
    return f"arc {number} to {arc.step}" + ("" if arc.when is None else f" (when {arc.when})")
