"""When a source that is kept running begins its next turn: its last turns go in, what is to be done comes out.

A turn is one task of the source. Its key holds its number, so that of all who begin the same turn one does. Nothing is
remembered here and no clock is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from noetl.model.task import TaskStatus

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
