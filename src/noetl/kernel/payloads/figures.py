"""What the tiers of one process did: reads by consumer and tier, bytes both ways, and why a tier was passed over.

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
    read_bytes: dict[str, int] = {}
    """How many bytes each tier served."""
    written: dict[str, int] = {}
    """How many bytes each tier took."""
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
        self._read_bytes: Counter[Tier] = Counter()
        self._written: Counter[Tier] = Counter()
        self._passed: Counter[str] = Counter()
        self._exhausted = 0
        self.changes = 0
        """How many things were counted, so that a teller knows whether there is news."""

    def read(self, consumer: str, tier: Tier, count: int) -> None:
        """Count a read, which tier served it, and how many bytes."""
        with self._lock:
            self._reads[consumer, tier] += 1
            self._read_bytes[tier] += count
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
                read_bytes={str(tier): count for tier, count in self._read_bytes.items()},
                written={str(tier): count for tier, count in self._written.items()},
                passed=dict(self._passed),
                exhausted=self._exhausted,
            )


def together(parts: Iterable[Told]) -> Told:
    """Add figures up."""
    reads: dict[str, Counter[str]] = {}
    read_bytes: Counter[str] = Counter()
    written: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    exhausted = 0
    for part in parts:
        for consumer, served in part.reads.items():
            reads.setdefault(consumer, Counter()).update(served)
        read_bytes.update(part.read_bytes)
        written.update(part.written)
        passed.update(part.passed)
        exhausted += part.exhausted
    return Told(
        reads={name: dict(served) for name, served in reads.items()},
        read_bytes=dict(read_bytes),
        written=dict(written),
        passed=dict(passed),
        exhausted=exhausted,
    )
