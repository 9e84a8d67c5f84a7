"""What the tiers of one process did: reads by consumer and tier, bytes written, and why a tier was passed over.

Counting only; what is counted is shown by metrics and by `noetl fabric status`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, get_args

import msgspec

Tier = Literal["memory", "ipc", "disk", "object"]
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
"""From the nearest to the durable one: Tier 1, 1.5, 2 and 3."""


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The figures of one or several processes as plain values."""

    reads: dict[str, dict[str, int]] = {}
    """How often each consumer was served by which tier."""
    written: dict[str, int] = {}
    passed: dict[str, int] = {}
    """How often a tier was passed over, by `tier:reason`."""
    exhausted: int = 0

    def ratio(self, consumer: str, tiers: Iterable[str]) -> float:
        """Return which part of a consumer's reads these tiers served."""
        served = self.reads.get(consumer, {})
        every = sum(served.values())
        return sum(served.get(tier, 0) for tier in tiers) / every if every else 0.0


class Figures:
    """The counts of one process; safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: Counter[tuple[str, Tier]] = Counter()
        self._written: Counter[Tier] = Counter()
        self._passed: Counter[str] = Counter()
        self._exhausted = 0
        self.changes = 0
        """How many things were counted, so that a teller knows whether there is news."""

    def read(self, consumer: str, tier: Tier) -> None:
        """Count a read and which tier served it."""
        with self._lock:
            self._reads[consumer, tier] += 1
            self.changes += 1

    def wrote(self, tier: Tier, count: int) -> None:
        """Count bytes that a tier took."""
        with self._lock:
            self._written[tier] += count
            self.changes += 1

    def passed(self, tier: Tier, reason: str) -> None:
        """Count that a tier could not be used or was not believed."""
        with self._lock:
            self._passed[f"{tier}:{reason}"] += 1
            self.changes += 1

    def exhausted(self) -> None:
        """Count a write that found the node's budget used up."""
        with self._lock:
            self._exhausted += 1
            self.changes += 1

    def told(self) -> Told:
        """Return the counts so far."""
        with self._lock:
            reads: dict[str, dict[str, int]] = {}
            for (consumer, tier), count in self._reads.items():
                reads.setdefault(consumer, {})[tier] = count
            return Told(
                reads=reads,
                written={str(tier): count for tier, count in self._written.items()},
                passed=dict(self._passed),
                exhausted=self._exhausted,
            )


def together(parts: Iterable[Told]) -> Told:
    """Add figures up."""
    reads: dict[str, Counter[str]] = {}
    written: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    exhausted = 0
    for part in parts:
        for consumer, served in part.reads.items():
            reads.setdefault(consumer, Counter()).update(served)
        written.update(part.written)
        passed.update(part.passed)
        exhausted += part.exhausted
    return Told(
        reads={name: dict(served) for name, served in reads.items()},
        written=dict(written),
        passed=dict(passed),
        exhausted=exhausted,
    )
