"""Faults aimed at one transition: its writes are late, and meanwhile whoever relies on a lease loses it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from noetl.testing.simulation.faults import FAULTY_SECONDS, AnyFault, Fault, WriteFault
from noetl.testing.simulation.world.playbooks import Shape

LATE_WRITES, AMONG_THE_FIRST = 6, 10
"""How many writes are late, and among how many."""
AIMED_SEEDS: Final = 0.1
"""Which part of all seeds is aimed at some transition."""

SHOWN_IN: Final[dict[str, Shape]] = {
    "command.claimed": "loop",
    "command.completed": "chain",
    "command.failed": "failing",
    "command.attempt_failed": "loop",
    "command.abandoned": "loop",
    "command.returned": "loop",
    "command.stalled": "loop",
    "command.resumed": "loop",
    "frame.dispatched": "loop",
    "frame.committed": "loop",
    "frame.checkpointed": "resumed",
    "frame.attempt_failed": "batch",
    "frame.failed": "batch",
    "frame.abandoned": "loop",
    "loop.shard.enqueued": "fanout",
    "loop.shard.done": "fanout",
    "loop.shard.attempt_failed": "fanout",
    "loop.shard.failed": "shards",
    "loop.shard.abandoned": "fanout",
    "execution.requested": "children",
}
"""The types of events that rely on a lease, and executions in which each comes often."""


def aim_of(seed: int) -> str | None:
    """Return the type of event that a seed is aimed at; None for most."""
    chance = random.Random(f"{seed}/closer")  # noqa: S311 - no secret depends on it
    return chance.choice(list(SHOWN_IN)) if chance.random() < AIMED_SEEDS else None


def aimed(seed: int, event_type: str, workers: Sequence[str]) -> list[AnyFault]:
    """Return what goes wrong around the writes of one type of event under a seed."""
    chance = random.Random(f"{seed}/aim")  # noqa: S311 - no secret depends on it
    found: list[AnyFault] = [
        WriteFault(event_type=event_type, number=number, seconds=chance.choice((1.0, 5.0, 9.0)))
        for number in sorted(chance.sample(range(1, AMONG_THE_FIRST + 1), LATE_WRITES))
    ]
    for who in workers:
        for at in _times(chance, every=chance.choice((4.0, 7.0, 11.0))):
            kind = chance.choice(("crash", "crash", "stop"))
            found.append(Fault(kind=kind, at=at, who=who, seconds=0.2 if kind == "crash" else 6.0))  # type: ignore[arg-type]
    # What waits for the store tells so after a second.
    found += [Fault(kind="store_away", at=at, seconds=chance.choice((2.5, 4.0))) for at in _times(chance, every=8.0)]
    for at in _times(chance, every=chance.choice((7.0, 100.0, 100.0))):
        # Leases have run out for a moment, and then last again.
        found.append(Fault(kind="clock", at=at, seconds=20.0))
        found.append(Fault(kind="clock", at=round(at + chance.uniform(0.8, 2.0), 2), seconds=-20.0))
    found += [Fault(kind="cancel", at=at) for at in _times(chance, every=chance.choice((6.0, 30.0, 100.0)))]
    return found


def _times(chance: random.Random, every: float) -> Iterator[float]:
    at = chance.uniform(1.0, every)
    while at < FAULTY_SECONDS:
        yield round(at, 2)
        at += chance.uniform(0.5 * every, 1.5 * every)
