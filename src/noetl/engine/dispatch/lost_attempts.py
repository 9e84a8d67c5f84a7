"""How often an attempt at a command may come to nothing before the command fails.

What counts is what the ledger says since the last frame that a command's holders ended, well or not, so a slot of a loop that
makes progress never uses up its attempts, and a plain command, which commits none, is bounded over its whole life. A command that
was handed back lost nothing.
"""

from __future__ import annotations

from typing import Protocol

from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.open_work.port import OpenWork
from noetl.model.stream import Scope

MAX_ATTEMPTS = 5
"""How many attempts in a row may come to nothing, with no frame ended by its holders between them, before a command fails."""


class Losable(Protocol):
    """What tells which command was lost."""

    @property
    def execution_id(self) -> int:
        """Its execution."""
        ...

    @property
    def command_id(self) -> str:
        """Its name within the execution."""
        ...

    @property
    def issued_event_id(self) -> int:
        """The event that issued it."""
        ...


class Losses:
    """Counts them."""

    def __init__(self, work: OpenWork, facts: Facts) -> None:
        self._work = work
        self._facts = facts

    async def exhausted(
        self, scope: Scope, command: Losable, stage_id: int | None = None, loop_id: int | None = None
    ) -> int | None:
        """Return how many attempts came to nothing with the present one, if no other may follow."""
        lost = 1 + await self._facts.losses(
            scope, command.execution_id, command.command_id, command.issued_event_id, loop_id
        )
        if lost < MAX_ATTEMPTS:
            return None
        if stage_id is not None and await self._has_frame_left(scope, command, stage_id, lost):
            return None
        return lost

    async def _has_frame_left(self, scope: Scope, slot: Losable, stage_id: int, lost: int) -> bool:
        """Tell whether a frame has attempts left: its own bound rules it, and the slot's must not cut it short."""
        stage = await self._work.stage(scope, slot.execution_id, stage_id)
        # A slot that is lost before it takes a frame leaves it as it was, so this ends, too.
        if stage is None or lost >= MAX_ATTEMPTS + stage.max_attempts:
            return False
        own = await self._work.frames_of(scope, slot.execution_id, slot.command_id)
        if any(frame.attempt < frame.max_attempts for frame in own):
            return True
        return bool(await self._work.free_frames(scope, slot.execution_id, stage_id))
