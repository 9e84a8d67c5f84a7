"""What people do with API tokens under a seed: they make and revoke them, let them expire, open the server again, and call."""

from __future__ import annotations

import random
from typing import Literal

import msgspec


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody does at a time."""

    kind: Literal["make", "revoke", "open", "call"]
    at: float
    seconds: float = 0.0
    """How long a new token is good; 0 for ever."""

    def __str__(self) -> str:
        match self.kind:
            case "make":
                return f"a token is made{f', good for {self.seconds:g} s' if self.seconds else ''}"
            case "revoke":
                return "the oldest token is revoked"
            case "open":
                return "somebody wants the server open again"
            case "call":
                return "somebody without a token calls"


def acts(seed: int) -> list[Act]:
    """Return what is done under a seed; in most of them nothing."""
    chance = random.Random(f"{seed}/tokens")  # noqa: S311 - no secret depends on it
    if chance.random() < 0.7:
        return []
    found = [Act(kind="call", at=0.5)]
    for _ in range(chance.choice((1, 1, 2))):
        at = round(chance.uniform(0.6, 5.0), 2)
        found.append(Act(kind="make", at=at, seconds=chance.choice((0.0, 2.0, 4.0))))
        if chance.random() < 0.6:
            found.append(Act(kind="revoke", at=round(at + chance.uniform(0.1, 4.0), 2)))
    if chance.random() < 0.4:
        found.append(Act(kind="open", at=round(chance.uniform(4.0, 14.0), 2)))
    found += [Act(kind="call", at=round(8.0 + 2.5 * number + chance.random(), 2)) for number in range(4)]
    return sorted(found, key=lambda one: one.at)
