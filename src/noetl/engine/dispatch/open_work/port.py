"""What dispatch asks about open work. The docstrings are the specification of every adapter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import msgspec

from noetl.kernel.leases.kinds import Kind
from noetl.kernel.leases.open_work import Nearness
from noetl.kernel.ledger.transition import Fence
from noetl.model.lease import Proof
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


class PendingCommand(msgspec.Struct, frozen=True):
    """A command that waits for a worker."""

    execution_id: int
    command_id: str
    attempt: int
    """How often it was handed out."""
    issued_event_id: int
    lease_seconds: float
    loop_id: int | None


class LostCommand(msgspec.Struct, frozen=True):
    """A command whose holder let its lease run out."""

    scope: Scope
    execution_id: int
    command_id: str
    step_name: str
    attempt: int
    lease_token: str
    worker: str
    issued_event_id: int
    stage_id: int | None
    loop_id: int | None


class HeldFrame(msgspec.Struct, frozen=True):
    """A frame that has a holder, or had one until its lease ran out."""

    execution_id: int
    frame_id: int
    stage_id: int
    loop_id: int | None
    shard_id: str | None
    attempt: int
    lease_token: str
    worker: str
    row_count: int
    frame_index: int
    step_name: str
    max_attempts: int
    has_expired: bool = True


class FreeFrame(msgspec.Struct, frozen=True):
    """A frame that was given up and waits for another holder."""

    frame_id: int
    frame_index: int
    first_index: int
    row_count: int
    attempt: int
    shard_id: str | None
    input_ref: PayloadRef | None
    checkpoint: dict[str, Any] | None
    held_by: str | None
    """The worker that had it last, near which its rows lie and what was saved of them."""


class OpenStage(msgspec.Struct, frozen=True):
    """How far a stage is."""

    next_index: int
    frames_minted: int
    frames_open: int
    frames_failed: int
    rows_done: int
    rows_failed: int
    errors: int
    ctx: dict[str, Any]
    has_failed_fast: bool
    """Whether a frame failed and the policy says that the rest is pointless then."""
    is_one_per_frame: bool
    """Whether the rows of a frame are worked off together, and come to one result."""
    max_attempts: int
    """How often a frame may be tried."""


class FrameInHand(msgspec.Struct, frozen=True):
    """A frame that somebody works at, with what is committed of its stage."""

    stage_id: int
    loop_id: int | None
    rows_done: int
    rows_failed: int
    frame_id: int
    attempt: int
    row_count: int


class SuspendedCommand(msgspec.Struct, frozen=True):
    """A command that waits for a child execution."""

    scope: Scope
    execution_id: int
    command_id: str
    child_execution_id: int


class OpenWork(Protocol):
    """Open work of all organizations. What is asked without a scope is asked of all of them; times are the ledger's.

    An answer is true when it is given and may be old when it is used: whoever acts on it fences its transition.
    """

    async def pending(self, scope: Scope, want: int, near: Nearness, *, loops: bool) -> list[PendingCommand]:
        """Return commands that a worker may claim now, the longest available first; slots of loops only if it wants them.

        Work that is near somewhere opens for others only after a while, see `noetl.engine.plan.locality.may_take`.
        """
        ...

    async def renew(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Make leases last their full time from now, never less than before, and return those that are still held."""
        ...

    async def holds(self, scope: Scope, fence: Fence) -> bool:
        """Tell whether the lease of a fence lasts, to know which of several was lost."""
        ...

    async def gone(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Return the leases that are somebody else's, or whose work has ended; one that only ran out is not gone."""
        ...

    async def free_frames(self, scope: Scope, execution_id: int, stage_id: int) -> list[FreeFrame]:
        """Return the frames of a stage that nobody holds, by their index, a hundred at most."""
        ...

    async def frames_of(self, scope: Scope, execution_id: int, command_id: str) -> list[HeldFrame]:
        """Return the frames that a slot holds, or held until its leases ran out."""
        ...

    async def frames_in_hand(self, scope: Scope, execution_id: int) -> list[FrameInHand]:
        """Return the frames of an execution that have holders, by stage, all as they are at one moment."""
        ...

    async def stage(self, scope: Scope, execution_id: int, stage_id: int) -> OpenStage | None:
        """Return a stage that is not closed."""
        ...

    async def is_suspended(self, scope: Scope, execution_id: int, command_id: str) -> bool:
        """Tell whether a command waits for a child execution."""
        ...

    async def expired_commands(self) -> list[LostCommand]:
        """Return commands whose leases ran out, the longest since first, some hundred at a time."""
        ...

    async def expired_frames(self) -> list[tuple[Scope, HeldFrame]]:
        """Return frames whose leases ran out, the longest since first, some hundred at a time."""
        ...

    async def forgotten(self, idle_seconds: float) -> list[SuspendedCommand]:
        """Return commands that have waited so long for a child that is not open, some hundred at a time."""
        ...
