"""One sentence of an explanation, and the words that several of them share."""

from __future__ import annotations

from typing import Any

import msgspec

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


def arc_words(plan: Plan | None, step: str, number: int) -> str:
    """Name an arc, with its target and condition where the playbook is known."""
    arcs: tuple[Any, ...] = ()
    if plan is not None and step in plan.steps and (router := plan.step(step).source.router) is not None:
        arcs = router.arcs
    if number >= len(arcs):
        return f"arc {number}"
    arc = arcs[number]
    return f"arc {number} to {arc.step}" + ("" if arc.when is None else f" (when {arc.when})")
