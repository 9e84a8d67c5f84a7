"""What schedulers count about themselves; whoever shows metrics keeps this promise. Nothing is told by schedule or tenant."""

from __future__ import annotations

from typing import Literal, Protocol

from noetl.services.schedule.spec import Kind

ClaimResult = Literal["won", "retried", "conflicted"]
RunResult = Literal["succeeded", "skipped", "attempt_failed", "failed", "lease_lost"]
BeatResult = Literal["renewed", "lost", "unreachable"]


class Meter(Protocol):
    """Counts."""

    def slots_claimed(self, kind: Kind, result: ClaimResult, count: int = 1) -> None:
        """Count moments that were claimed, tried again, or taken by somebody quicker."""
        ...

    def slot_ended(self, kind: Kind, result: RunResult, seconds: float) -> None:
        """Count a run and how long it took."""
        ...

    def slots_beaten(self, kind: Kind, result: BeatResult, count: int = 1) -> None:
        """Count heartbeats."""
        ...


class NoMeter:
    """Counts nothing."""

    def slots_claimed(self, kind: Kind, result: ClaimResult, count: int = 1) -> None:
        """Count nothing."""

    def slot_ended(self, kind: Kind, result: RunResult, seconds: float) -> None:
        """Count nothing."""

    def slots_beaten(self, kind: Kind, result: BeatResult, count: int = 1) -> None:
        """Count nothing."""
