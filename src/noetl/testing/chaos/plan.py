"""What will go wrong, and when: in goes a seed, out comes the same list every time. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

Kind = Literal["kill", "pause", "stop", "outage", "full_disk", "clock"]

SETTLE_SECONDS: Final = 5.0
"""How long all is well at the beginning, so that there is work to disturb."""
MEAN_SECONDS: Final = 4.0
"""How far incidents lie apart, on average."""
LONGEST: Final[dict[Kind, float]] = {
    "kill": 3.0,
    "pause": 20.0,
    "stop": 1.0,
    "outage": 8.0,
    "full_disk": 6.0,
    "clock": 10.0,
}
"""How many seconds an incident may last; pauses exceed the leases, so that what was given away is claimed by two."""
WEIGHTS: Final[dict[Kind, int]] = {"kill": 6, "pause": 3, "stop": 2, "outage": 2, "full_disk": 1, "clock": 2}
CLOCK_STEP_SECONDS: Final = 120.0


class Incident(msgspec.Struct, frozen=True):
    """One thing that goes wrong."""

    at: float
    """Seconds after the start."""
    kind: Kind
    target: str
    seconds: float
    """How long it lasts."""
    step: float = 0.0
    """By how much a clock is wrong."""


class Targets(msgspec.Struct, frozen=True):
    """Whom each kind of incident may hit; a kind without targets does not happen."""

    processes: tuple[str, ...]
    """Roles and Spark drivers, which can be killed, paused or stopped politely."""
    servers: tuple[str, ...]
    """What the roles stand on: a server that can be away."""
    disks: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()

    def of(self, kind: Kind) -> Sequence[str]:
        """Return whom an incident of this kind may hit."""
        named: dict[Kind, Sequence[str]] = {
            "kill": self.processes + self.servers,
            "pause": self.processes,
            "stop": tuple(one for one in self.processes if one != "spark"),
            "outage": self.servers,
            "full_disk": self.disks,
            "clock": self.clocks,
        }
        return named[kind]


def planned(seed: int, seconds: float, targets: Targets) -> tuple[Incident, ...]:
    """Return the incidents of a run, in the order they begin."""
    # Not for secrets: the same seed must give the same incidents.
    chance = random.Random(seed)  # noqa: S311
    kinds = [kind for kind in WEIGHTS if targets.of(kind)]
    weights = [WEIGHTS[kind] for kind in kinds]
    found: list[Incident] = []
    at = SETTLE_SECONDS
    while at < seconds:
        kind = chance.choices(kinds, weights)[0]
        target = chance.choice(targets.of(kind))
        lasts = chance.uniform(0.1, LONGEST[kind])
        step = chance.choice((-1, 1)) * chance.uniform(1.0, CLOCK_STEP_SECONDS) if kind == "clock" else 0.0
        found.append(Incident(round(at, 2), kind, target, round(min(lasts, seconds - at), 2), round(step, 1)))
        at += chance.expovariate(1 / MEAN_SECONDS)
    return tuple(found)
