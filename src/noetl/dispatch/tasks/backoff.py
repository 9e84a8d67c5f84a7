"""How long to wait before the next try: longer each time, and never the same for all who failed together."""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """The first wait and the longest."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, tries: int) -> float:
        """Return the wait after so many tries, from 1, anywhere between half and one and a half of its length."""
        length = min(self.longest_seconds, self.first_seconds * 2.0 ** min(tries - 1, 60))
        return length * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, hides nothing


TASKS = Backoff(30.0, 600.0)
OUTBOX = Backoff(1.0, 300.0)
