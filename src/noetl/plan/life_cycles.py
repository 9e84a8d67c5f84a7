"""In which state of their life jobs are: what their tasks and their version tell goes in, one word comes out.

A source is Pending, Running, Dead or Draining, a reactive job Idle or Running; a job that no version in use has is in
none. The words follow from tasks, leases and versions: nothing here is a truth of its own.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Literal

import msgspec

SourceState = Literal["Pending", "Running", "Dead", "Draining"]
ReactiveState = Literal["Idle", "Running"]
JobState = SourceState | ReactiveState


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of a job at one moment."""

    in_use: bool
    """Whether its version serves, or is being built."""
    held: int = 0
    """Tasks under a lease that lasts."""
    lost: int = 0
    """Tasks whose lease has run out, and that nobody has taken back yet."""
    stopping: int = 0
    """Tasks under a lease that were asked to end."""
    queued: int = 0
    retrying: int = 0
    """Tasks that failed and will be tried again."""
    newest: str | None = None
    """The status of the newest turn, of a source that is kept running."""
    last_sign: datetime | None = None
    """When its last task ended, as far as that matters."""


def source_state(
    seen: Sight, *, kept_running: bool, now: datetime, every_seconds: float, silent_seconds: float
) -> SourceState | None:
    """Return the state of a source.

    `silent_seconds` is how long one that is kept running may show no sign of life, besides the pause between turns.
    """
    if seen.held and (seen.stopping or not seen.in_use):
        return "Draining"
    if not seen.in_use:
        return None
    if seen.held:
        return "Running"
    if seen.lost or seen.retrying:
        return "Dead"
    if seen.queued or not kept_running or seen.newest in (None, "Canceled"):
        return "Pending"
    if seen.newest == "Failed" or seen.last_sign is None:
        return "Dead"
    # Between two turns it lives, unless the next does not come.
    return "Running" if now - seen.last_sign <= timedelta(seconds=every_seconds + silent_seconds) else "Dead"


def reactive_state(seen: Sight, *, now: datetime, idle_seconds: float | None) -> ReactiveState | None:
    """Return the state of a job that what it reads starts: it is idle so long after its last task, at once unless told."""
    if seen.held or seen.lost or seen.queued or seen.retrying:
        return "Running" if seen.in_use or seen.held else None
    if not seen.in_use:
        return None
    if seen.last_sign is None or not idle_seconds:
        return "Idle"
    if math.isinf(idle_seconds):
        return "Running"
    return "Running" if now - seen.last_sign < timedelta(seconds=idle_seconds) else "Idle"
