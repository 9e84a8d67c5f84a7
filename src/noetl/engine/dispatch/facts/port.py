"""What dispatch looks up among recorded facts. The docstrings are the specification of every adapter."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


class IssuedCommand(msgspec.Struct, frozen=True):
    """What a command was issued with."""

    meta: dict[str, Any]
    context: dict[str, Any]
    fields_ref: PayloadRef | None = None
    """Where the rest of its context lies, if it was too large; `Executions.whole` reads it."""


class FrameEnd(msgspec.Struct, frozen=True):
    """What a frame came to, committed or failed."""

    frame_id: int
    first_index: int | None
    payload_ref: PayloadRef | None
    row_count: int
    worker: str | None
    """Who made the payload, if the first attempt did."""


class FrameFailure(msgspec.Struct, frozen=True):
    """The end of a frame that failed, or of which rows did."""

    frame_id: int
    first_index: int | None
    row_count: int | None
    result: dict[str, Any]
    error: str | None


class Facts(Protocol):
    """Facts of one organization at a time, with those that are decided and not in the ledger yet."""

    async def issued(self, scope: Scope, execution_id: int, command_id: str) -> IssuedCommand | None:
        """Return what a command was issued with; None where nothing was recorded."""
        ...

    async def taking_along(self, scope: Scope, parent_id: int, child_id: int) -> str | None:
        """Return the event by which an ended parent takes a child along; None if it lets the child be.

        A parent that was cancelled takes all along unless it was told not to; one that failed takes what it waited for.
        """
        ...

    async def frame_ends(self, scope: Scope, execution_id: int, loop_id: int) -> list[FrameEnd]:
        """Return how the frames of a loop ended, in the order of their rows."""
        ...

    async def first_failure(self, scope: Scope, execution_id: int, loop_id: int) -> FrameFailure | None:
        """Return the first frame of a loop, in the order of rows, that failed or of which rows did."""
        ...

    async def losses(
        self, scope: Scope, execution_id: int, command_id: str, issued_event_id: int, loop_id: int | None
    ) -> int:
        """Return how many attempts at a command were lost or failed since the last frame it committed, if it has any.

        What was handed back is none of them.
        """
        ...

    async def execution_of(self, scope: Scope, idempotency_key: str) -> int | None:
        """Return the execution of the event that a key was first used for, as long as the key is kept."""
        ...

    async def payload_at(self, scope: Scope, locator: str) -> PayloadRef:
        """Return the reference a locator stands for; `NotFound` where no event of the organization refers to it."""
        ...
