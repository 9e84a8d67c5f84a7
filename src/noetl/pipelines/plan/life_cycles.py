"""Which state a job is in, and when a continuous source begins its next turn: tasks go in, a verdict comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from noetl.model.task import TaskStatus

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


PREFIX: Final = "turn:"
AFTER: Final = "turn;"
"""Every key of a turn sorts between these two."""
PAUSED: Final = "it is paused"
"""Why the turn was cancelled after which none follows until somebody says so."""
EVERY_SECONDS: Final = 1.0
"""How far turns begin apart unless told."""
LONGEST_SECONDS: Final = 300.0
"""How long at most a source that keeps failing waits for its next turn."""
LOOKED_AT: Final = 10
"""Turns that decide: so many failures in a row wait the longest."""
_DIGITS: Final = 12


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as its task has it."""

    number: int
    task_id: str
    status: TaskStatus
    is_open: bool
    created_at: datetime
    ended_at: datetime | None = None
    paused: bool = False
    set_aside: bool = False
    """Whether it was cancelled since nobody used its generation."""
    ends: bool = False
    """Whether it was asked to stop and has not yet."""


class Begin(msgspec.Struct, frozen=True):
    """Begin a turn."""

    number: int


class Resume(msgspec.Struct, frozen=True):
    """Let a turn go on that was set aside."""

    task_id: str


class Wait(msgspec.Struct, frozen=True):
    """Look again after so long; None waits for somebody else's doing."""

    seconds: float | None = None


def turn_key(number: int) -> str:
    """Name a turn; keys sort like their numbers."""
    return f"{PREFIX}{number:0{_DIGITS}d}"


def turn_number(key: str) -> int | None:
    """Return the number of a turn from its key; None if it is no turn's."""
    return int(key.removeprefix(PREFIX)) if key.startswith(PREFIX) else None


def next_step(turns: Sequence[Turn], *, now: datetime, every_seconds: float) -> Begin | Resume | Wait:
    """Say what is to be done for a source, of which these are the last turns, the newest first."""
    if not turns:
        return Begin(1)
    newest = turns[0]
    if newest.is_open or newest.paused:
        return Wait()
    if newest.set_aside:
        return Resume(newest.task_id)
    left = (_due(turns, every_seconds) - now).total_seconds()
    return Begin(newest.number + 1) if left <= 0 else Wait(left)


def _due(turns: Sequence[Turn], every_seconds: float) -> datetime:
    newest = turns[0]
    failed = next((place for place, one in enumerate(turns) if one.status != "Failed"), len(turns))
    if failed:
        longest = min(LONGEST_SECONDS, max(every_seconds, EVERY_SECONDS) * 2.0**failed)
        return (newest.ended_at or newest.created_at) + timedelta(seconds=longest)
    return newest.created_at + timedelta(seconds=every_seconds)
