"""What a seed stands for: who is there, what people ask for, and what goes wrong."""

from __future__ import annotations

import random

import msgspec

from noetl.testing.simulation.aiming import SHOWN_IN, aim_of, aimed
from noetl.testing.simulation.faults import AnyFault, planned
from noetl.testing.simulation.world.playbooks import Shape, Wanted, wanted
from noetl.testing.simulation.world.tokens import Act, acts


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A seed, spelled out: any part of it can be left out to see whether it is needed."""

    seed: int
    processes: tuple[str, ...]
    wanted: tuple[Wanted, ...]
    faults: tuple[AnyFault, ...]
    acts: tuple[Act, ...] = ()
    """What is done with API tokens."""


def scenario_of(seed: int, only: Shape | None = None, late: str | None = None) -> Scenario:
    """Return what a seed stands for.

    To look closer at something, `only` gives executions of one shape, and two servers; `late` holds up writes of one type of
    event, and takes their workers away meanwhile. Some seeds do so by themselves.
    """
    if only is None and late is None and (late := aim_of(seed)) is not None:
        only = SHOWN_IN[late]
    chance = random.Random(f"{seed}/scenario")  # noqa: S311 - no secret depends on it
    workers = [f"worker-{number + 1}" for number in range(chance.choice((1, 2, 3)))]
    processes = ["server-1", *workers]
    processes += ["server-2"] if chance.random() < 0.6 or only else []
    processes += chance.choice(([], [], ["projector-1"], ["projector-1", "projector-2"]))
    processes += ["scheduler-1", "scheduler-2"] if chance.random() < 0.15 else []
    processes += ["outbox-1", "outbox-2"] if chance.random() < 0.3 else []
    faults = [*planned(seed, processes, workers), *(aimed(seed, late, workers) if late else ())]
    return Scenario(
        seed=seed,
        processes=tuple(processes),
        wanted=tuple(wanted(seed, only)),
        faults=tuple(faults),
        acts=tuple(acts(seed)),
    )
