"""What a worker asks of those who hand out work; the same in one process and over the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from noetl.engine.dispatch.grants import Child, ChildEnd, CommandGrant, FrameGrant, FrameReport, FrameSoFar, LeaseRef
from noetl.engine.plan.locality import Wish
from noetl.engine.plan.trigger import CommandEnded
from noetl.language.playbook.model import Playbook
from noetl.model.payload_ref import PayloadRef


class Dispatch(Protocol):
    """Hands out commands and frames under leases and takes back what came of them.

    Everything that changes something is fenced by the lease: `LeaseLost` means that somebody else has the work now,
    and that nothing was written.
    """

    async def claim(
        self, worker: str, want: int, wait_seconds: float, wish: Wish | None = None, loops: int | None = None
    ) -> list[CommandGrant]:
        """Lease up to `want` commands, waiting up to `wait_seconds` for the first.

        `wish` says how near they should be, `loops` how many of them may be slots of loops.
        """
        ...

    async def complete(
        self, grant: CommandGrant, report: CommandEnded, *, worker: str, take_next: bool
    ) -> CommandGrant | None:
        """Record the end of a command and what follows from it; with `take_next`, return a lease on what comes next."""
        ...

    async def started(self, grant: CommandGrant, application_id: str, job_tag: str) -> None:
        """Record under which names Spark is about to work on a command, so that whoever comes after can stop it."""
        ...

    async def stalled(self, grant: CommandGrant, part: str, reason: str | None, number: int) -> None:
        """Record that a command waits for a part of the platform, or, without a reason, that the part answers again.

        `number` counts what the attempt has told, so that what is told twice is recorded once.
        """
        ...

    async def give_back(self, grant: CommandGrant, reason: str, *, delay_seconds: float, counts: bool = True) -> None:
        """Say that an attempt came to nothing; another may follow, up to a bound unless it does not count.

        What does not count is neither the work's fault nor a lost worker: one that stops, or a platform that is away.
        """
        ...

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Make leases last longer and return those that are lost."""
        ...

    async def lost(self, leases: Sequence[LeaseRef], so_far: Sequence[FrameSoFar] = ()) -> list[LeaseRef]:
        """Return the commands' leases among these that somebody took away; none of them lasts any longer for it.

        `so_far` says how far frames in hand are. It is shown to people where it can be, and may be dropped.
        """
        ...

    async def next_frame(self, grant: CommandGrant, worker: str, wish: Wish | None = None) -> FrameGrant | None:
        """Lease a frame nobody works on any more, or the next rows of the collection; None when there are none.

        Of several frames the one is leased whose last worker is nearest, by `wish` or by the worker's name, and none that
        is farther than the wish allows.
        """
        ...

    async def dispatch_rows(self, grant: CommandGrant, worker: str, rows: PayloadRef, row_count: int) -> FrameGrant:
        """Record rows that were claimed elsewhere as a new frame, leased to this worker."""
        ...

    async def commit_frame(
        self, grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
    ) -> FrameGrant | None:
        """Record what a frame came to, once; with `take_next`, return the next one in the same transaction."""
        ...

    async def fail_frame(self, frame: FrameGrant, error: dict[str, Any], *, max_attempts: int, worker: str) -> None:
        """Record that an attempt at a frame failed; after the last one the frame's rows count as failed."""
        ...

    async def checkpoint(self, frame: FrameGrant, cursor: dict[str, Any]) -> None:
        """Record how far a frame got, so that a new owner can go on from there."""
        ...

    async def playbook(self, catalog_id: str) -> Playbook:
        """Return a playbook version."""
        ...

    async def run_child(self, grant: CommandGrant, child: Child) -> ChildEnd:
        """Start a child execution unless it runs already, and wait for its end."""
        ...

    async def reference(self, locator: str) -> PayloadRef:
        """Return the reference of a payload that an event of the organization refers to, by its locator."""
        ...

    async def loop_ctx(self, grant: CommandGrant) -> dict[str, Any]:
        """Return the shared values that committed frames of a loop have set so far."""
        ...

    async def ended(self, executions: Sequence[int]) -> list[int]:
        """Return those executions that have ended, so that what was kept for them can go."""
        ...
