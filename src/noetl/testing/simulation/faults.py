"""What goes wrong in a world, as a list that a seed gives: each fault stands for itself, so that any of them can be left out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import msgspec

ProcessFaultKind = Literal["crash", "pause", "stop"]
WorldFaultKind = Literal["clock", "store_away", "cancel"]
MessageFaultKind = Literal["lose_request", "late_request", "repeat", "lose_answer", "late_answer"]
MESSAGE_FAULTS: tuple[MessageFaultKind, ...] = ("lose_request", "late_request", "repeat", "lose_answer", "late_answer")

FAULTY_SECONDS = 50.0
"""Until when things go wrong; what is down then comes back, and everything must end."""

_KINDS = ("crash", "pause", "pause", "crash", "clock", "store_away", "cancel")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens at a time: to a process, or to all."""

    kind: ProcessFaultKind | WorldFaultKind
    at: float
    who: str = ""
    seconds: float = 0.0
    """How long a process is away or stands still, by how much a clock is set, or how long the store is away."""

    def __str__(self) -> str:
        match self.kind:
            case "crash":
                return f"{self.who} is killed, and starts again {self.seconds:g} s later"
            case "pause":
                return f"{self.who} stands still for {self.seconds:g} s"
            case "stop":
                return f"{self.who} is asked to stop, and starts again {self.seconds:g} s later"
            case "clock":
                return f"the database's clock is set {'forward' if self.seconds > 0 else 'back'} by {abs(self.seconds):g} s"
            case "store_away":
                return f"the payload store is away for {self.seconds:g} s"
            case "cancel":
                return "somebody cancels the oldest execution"


class MessageFault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens to one message of one worker, by its number."""

    kind: MessageFaultKind
    who: str
    number: int
    seconds: float = 0.0

    def __str__(self) -> str:
        word = {
            "lose_request": "is lost",
            "late_request": f"arrives {self.seconds:g} s late, given up by its sender",
            "repeat": f"arrives twice, {self.seconds:g} s apart",
            "lose_answer": "is done, and its answer is lost",
            "late_answer": f"is answered {self.seconds:g} s late",
        }[self.kind]
        return f"message {self.number} of {self.who} {word}"


class WriteFault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens to one write of one type of event, by its number: it waits on its way to the ledger."""

    event_type: str
    number: int
    seconds: float

    def __str__(self) -> str:
        return f"write {self.number} of {self.event_type} reaches the ledger {self.seconds:g} s late"


AnyFault = Fault | MessageFault | WriteFault


def planned(seed: int, processes: Sequence[str], workers: Sequence[str]) -> list[AnyFault]:
    """Return what goes wrong under a seed; some seeds are calm, some kill one kind of process over and over."""
    chance = random.Random(f"{seed}/faults")  # noqa: S311 - no secret depends on it
    found: list[AnyFault] = []
    mood = chance.choice(("calm", "mixed", "mixed", "mixed", "deadly", "lossy"))
    many = {"calm": 1, "mixed": 5, "deadly": 4, "lossy": 2}[mood]
    for _ in range(many):
        at, kind = round(chance.uniform(0.1, FAULTY_SECONDS), 2), chance.choice(_KINDS)
        if kind in ("crash", "pause"):
            who = chance.choice(processes)
            seconds = chance.choice((0.5, 2.0, 6.0, 12.0))
            found.append(Fault(kind=kind, at=at, who=who, seconds=seconds))  # type: ignore[arg-type]
        elif kind == "clock":
            found.append(Fault(kind="clock", at=at, seconds=chance.choice((-20.0, -3.0, 3.0, 20.0))))
        elif kind == "store_away":
            found.append(Fault(kind="store_away", at=at, seconds=chance.choice((0.3, 1.5))))
        elif chance.random() < 0.6:
            found.append(Fault(kind="cancel", at=at))
    # What is delivered takes little time, so those who deliver stand still more often than others.
    idle = [name for name in processes if name.startswith("outbox")] if mood != "calm" else []
    found += [
        Fault(kind="pause", at=round(chance.uniform(3.0, 20.0), 2), who=who, seconds=6.0)
        for who in idle
        for _ in range(4)
    ]
    if mood == "deadly":
        found += [
            Fault(kind="crash", at=round(at + chance.uniform(0.0, 1.0), 2), who=who, seconds=0.2)
            for who in workers
            for at in range(2, int(FAULTY_SECONDS), chance.choice((2, 3, 5)))
        ]
    for _ in range({"calm": 2, "mixed": 10, "deadly": 2, "lossy": 40}[mood]):
        kind = chance.choice(MESSAGE_FAULTS)
        number = int(chance.expovariate(1 / 25)) + 1
        seconds = chance.choice((0.2, 1.0, 5.0, 9.0))
        found.append(MessageFault(kind=kind, who=chance.choice(workers), number=number, seconds=seconds))
    return sorted(found, key=lambda one: (one.at if isinstance(one, Fault) else -1.0, str(one)))
