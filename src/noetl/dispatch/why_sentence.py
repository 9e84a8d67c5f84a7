"""One sentence of an explanation, and the words that several of them share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from noetl.dispatch.story import Run, Story
from noetl.model.event import Event, time_text
from noetl.plan.planned import Plan


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
