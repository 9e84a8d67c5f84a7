"""The dispatch of a worker: while ledger or server are away, whoever reports or asks under a lease waits for them.

A report is sent again when it is unknown whether it was recorded. If it was, its lease is gone with it: the second try is
refused as lost, which is no failure of the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from noetl.engine.dispatch.grants import Child, ChildEnd, CommandGrant, FrameGrant, FrameReport, FrameSoFar, LeaseRef
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.plan.locality import Wish
from noetl.engine.plan.trigger import CommandEnded
from noetl.engine.platform.waits import answered
from noetl.errors import Conflict, KeyReused, LeaseLost
from noetl.language.playbook.model import Playbook
from noetl.model.payload_ref import PayloadRef

T = TypeVar("T")

_PART: Final = "ledger"


class PatientDispatch:
    """A dispatch that is waited for; see `Dispatch` for the promises."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def claim(
        self, worker: str, want: int, wait_seconds: float, wish: Wish | None = None, loops: int | None = None
    ) -> list[CommandGrant]:
        """Lease commands; who asks for work holds none, and asks again by itself."""
        return await self._dispatch.claim(worker, want, wait_seconds, wish, loops)

    async def complete(
        self, grant: CommandGrant, report: CommandEnded, *, worker: str, take_next: bool
    ) -> CommandGrant | None:
        """Record the end of a command."""
        return await _reported(lambda: self._dispatch.complete(grant, report, worker=worker, take_next=take_next))

    async def started(self, grant: CommandGrant, application_id: str, job_tag: str) -> None:
        """Record where the work runs."""
        await _reported(lambda: self._dispatch.started(grant, application_id, job_tag))

    async def stalled(self, grant: CommandGrant, part: str, reason: str | None, number: int) -> None:
        """Tell that a command waits; who tells it does not wait for it."""
        await self._dispatch.stalled(grant, part, reason, number)

    async def give_back(self, grant: CommandGrant, reason: str, *, delay_seconds: float, counts: bool = True) -> None:
        """Say that an attempt came to nothing."""
        await _reported(lambda: self._dispatch.give_back(grant, reason, delay_seconds=delay_seconds, counts=counts))

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Renew leases; those who beat keep their own time."""
        return await self._dispatch.heartbeat(leases)

    async def lost(self, leases: Sequence[LeaseRef], so_far: Sequence[FrameSoFar] = ()) -> list[LeaseRef]:
        """Return the leases that somebody took away."""
        return await self._dispatch.lost(leases, so_far)

    async def next_frame(self, grant: CommandGrant, worker: str, wish: Wish | None = None) -> FrameGrant | None:
        """Lease the next frame."""
        return await answered(_PART, lambda: self._dispatch.next_frame(grant, worker, wish))

    async def dispatch_rows(self, grant: CommandGrant, worker: str, rows: PayloadRef, row_count: int) -> FrameGrant:
        """Record claimed rows; asked twice it would make two frames of them, so a failure gives the claim up."""
        return await self._dispatch.dispatch_rows(grant, worker, rows, row_count)

    async def commit_frame(
        self, grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
    ) -> FrameGrant | None:
        """Record what a frame came to."""
        return await _reported(
            lambda: self._dispatch.commit_frame(grant, frame, report, worker=worker, take_next=take_next)
        )

    async def fail_frame(self, frame: FrameGrant, error: dict[str, Any], *, max_attempts: int, worker: str) -> None:
        """Record that an attempt at a frame failed."""
        await _reported(lambda: self._dispatch.fail_frame(frame, error, max_attempts=max_attempts, worker=worker))

    async def checkpoint(self, frame: FrameGrant, cursor: dict[str, Any]) -> None:
        """Record how far a frame got."""
        await answered(_PART, lambda: self._dispatch.checkpoint(frame, cursor))

    async def playbook(self, catalog_id: str) -> Playbook:
        """Return a playbook version."""
        return await answered(_PART, lambda: self._dispatch.playbook(catalog_id))

    async def run_child(self, grant: CommandGrant, child: Child) -> ChildEnd:
        """Run a child execution to its end; asked again, it waits for the same one."""
        return await answered(_PART, lambda: self._dispatch.run_child(grant, child))

    async def reference(self, locator: str) -> PayloadRef:
        """Return the reference of a payload."""
        return await answered(_PART, lambda: self._dispatch.reference(locator))

    async def loop_ctx(self, grant: CommandGrant) -> dict[str, Any]:
        """Return what committed frames have set."""
        return await answered(_PART, lambda: self._dispatch.loop_ctx(grant))

    async def ended(self, executions: Sequence[int]) -> list[int]:
        """Return those executions that have ended."""
        return await self._dispatch.ended(executions)


async def _reported(send: Callable[[], Awaitable[T]]) -> T:
    """Send a report until it is answered; one that is refused when it is sent again was recorded, or is somebody else's."""
    tries = 0

    async def sent() -> T:
        nonlocal tries
        tries += 1
        try:
            return await send()
        except (Conflict, KeyReused) as refused:
            if tries == 1 or isinstance(refused, LeaseLost):
                raise
            raise LeaseLost(f"it is not known whether this was recorded before: {refused.message}") from refused

    return await answered(_PART, sent)
