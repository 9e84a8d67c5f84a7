"""Dispatch on ledger and open work themselves, for workers in the same process and behind the API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from noetl.engine.catalog.playbooks import Catalog
from noetl.engine.dispatch.assignment import grant_of
from noetl.engine.dispatch.children import Children
from noetl.engine.dispatch.drafts import Drafting, command_stream, new_lease
from noetl.engine.dispatch.executions import Executions
from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.grants import Child, ChildEnd, CommandGrant, FrameGrant, FrameReport, FrameSoFar, LeaseRef
from noetl.engine.dispatch.loops.frames import Frames
from noetl.engine.dispatch.loops.progress import LoopsSoFar
from noetl.engine.dispatch.lost_attempts import Losses
from noetl.engine.dispatch.open_executions.port import OpenExecutions
from noetl.engine.dispatch.open_work.port import OpenWork, PendingCommand
from noetl.engine.dispatch.polling import Signal
from noetl.engine.dispatch.reports import commands as reports
from noetl.engine.dispatch.reports.references import References
from noetl.engine.plan.locality import Claimant, Wish, claimant, opening, place_of
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import UNREADABLE, Conflict, FramesOpen, LeaseLost, NotFound
from noetl.faults import reach
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import COMMAND, FRAME
from noetl.kernel.leases.open_work import Nearness
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.language.playbook.model import Playbook, Step
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_log = logging.getLogger(__name__)

FRAMES_OPEN_SECONDS = 1.0
"""How long a slot waits that cannot end its loop yet, because frames of slots that are gone have not been taken back."""


class LocalDispatch:
    """See `Dispatch` for the promises; bound to one organization."""

    def __init__(
        self,
        scope: Scope,
        work: OpenWork,
        running: OpenExecutions,
        facts: Facts,
        ledger: Ledger,
        executions: Executions,
        frames: Frames,
        children: Children,
        catalog: Catalog,
        drafting: Drafting,
        signal: Signal,
        so_far: LoopsSoFar,
        references: References,
    ) -> None:
        self._scope = scope
        self._work = work
        self._open = running
        self._facts = facts
        self._ledger = ledger
        self._executions = executions
        self._frames = frames
        self._children = children
        self._catalog = catalog
        self._drafting = drafting
        self._signal = signal
        self._so_far = so_far
        self._losses = Losses(work, facts)
        self._references = references

    async def claim(
        self, worker: str, want: int, wait_seconds: float, wish: Wish | None = None, loops: int | None = None
    ) -> list[CommandGrant]:
        """Lease commands that wait."""
        loops = want if loops is None else min(loops, want)
        who = claimant(worker, wish)
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            seen = self._signal.number
            granted = await self._claim_now(worker, want, loops, who)
            left = deadline - asyncio.get_running_loop().time()
            if not granted and left > 0:
                granted = await self._handed(worker, want, loops, seen, min(left, 0.5), who)
            if granted or left <= 0:
                return granted

    async def _handed(
        self, worker: str, want: int, loops: int, seen: int, seconds: float, who: Claimant
    ) -> list[CommandGrant]:
        """Wait for news, and for commands that are leased to this worker as they are issued."""
        with self._executions.waiters.waiting(self._scope, worker, want, who, loops) as waiter:
            try:
                await self._signal.wait(seen, seconds, waiter.woken)
            except asyncio.CancelledError:
                # Nobody will work on what it was promised, and others need not wait until the lease runs out.
                for grant in await waiter.granted():
                    await self.give_back(grant, "its worker stopped before it began", delay_seconds=0.0, counts=False)
                raise
        return await waiter.granted()

    async def _claim_now(self, worker: str, want: int, loops: int, who: Claimant) -> list[CommandGrant]:
        near = Nearness(who.node, who.zone, who.region, opening(who, self._executions.patience))
        found = await self._work.pending(self._scope, want, near, loops=loops > 0)
        slots = [one for one in found if one.loop_id is not None]
        if len(slots) > loops:
            # What stands behind them is seen with the next claim, which asks for no more slots.
            found = [one for one in found if one.loop_id is None or one in slots[:loops]]
        claims = (self._claim_one(worker, one) for one in found)
        # One that fails takes none of the others along: they are leased, and nobody else would work on them.
        answers = await asyncio.gather(*claims, return_exceptions=True)
        problems = [answer for answer in answers if isinstance(answer, BaseException)]
        granted = [answer for answer in answers if isinstance(answer, CommandGrant)]
        if problems and not granted:
            raise problems[0]
        for problem in problems:
            _log.warning("a command could not be claimed, and is looked at again later: %s", problem)
        return granted

    async def _claim_one(self, worker: str, found: PendingCommand) -> CommandGrant | None:
        execution_id, command_id, attempt = found.execution_id, found.command_id, found.attempt
        lease = new_lease(worker, attempt + 1, found.lease_seconds)
        # All that could fail comes before the claim: what is leased to a worker that gets no answer counts as lost.
        try:
            grant = await self._grant(found, lease)
        except UNREADABLE as problem:
            with suppress(Conflict):
                await self._executions.fail_unread(self._scope, execution_id, problem)
            return None
        except NotFound:
            return None  # it was cancelled a moment ago
        claim = self._drafting.claim(self._scope, execution_id, command_id, found.issued_event_id, lease)
        fence = fences.free(COMMAND, (execution_id, command_id), attempt)
        reach("claim.before_record")
        try:
            await self._ledger.transact(Transition((claim,), (fence,)))
        except LeaseLost:
            return None
        reach("claim.after_record")
        return grant

    async def _grant(self, found: PendingCommand, lease: dict[str, Any]) -> CommandGrant:
        state = await self._executions.state_with(self._scope, found.execution_id, found.command_id)
        grant = grant_of(state, found.command_id, lease, found.issued_event_id)
        if found.attempt and grant.loop is not None and grant.loop.frame.get("runtime") == "spark":
            return msgspec.structs.replace(grant, left=await self._left(grant))
        return grant

    async def _left(self, grant: CommandGrant) -> tuple[str, str] | None:
        """Return where the attempts before ran last, if they got so far."""
        stream, left = command_stream(self._scope, grant.execution_id, grant.issued_event_id), None
        async for event in self._ledger.read(stream):
            if event.event_type == "command.started":
                left = (event.meta["application_id"], event.meta["job_tag"])
        return left

    async def started(self, grant: CommandGrant, application_id: str, job_tag: str) -> None:
        """Record where the work runs."""
        reports.started(grant, application_id, job_tag)
        stream = command_stream(self._scope, grant.execution_id, grant.issued_event_id)
        draft = self._drafting.one(
            self._scope, stream, grant.execution_id, "command.started", f"command/{grant.command_id}",
            command_id=grant.command_id,
            meta={"attempt": grant.attempt, "application_id": application_id, "job_tag": job_tag},
        )  # fmt: skip
        fence = fences.held(COMMAND, grant.lease.proof)
        await self._ledger.transact(Transition((Append(stream, [draft]),), (fence,)))

    async def stalled(self, grant: CommandGrant, part: str, reason: str | None, number: int) -> None:
        """Record that a command waits, or goes on."""
        word = "resumed" if reason is None else "stalled"
        stream = command_stream(self._scope, grant.execution_id, grant.issued_event_id)
        draft = self._drafting.one(
            self._scope, stream, grant.execution_id, f"command.{word}", f"command/{grant.command_id}",
            command_id=grant.command_id, meta={"attempt": grant.attempt, "part": part}, error=reason,
            idempotency_key=f"{grant.execution_id}/{grant.command_id}/{word}/{grant.attempt}/{number}",
        )  # fmt: skip
        await self._ledger.transact(Transition((Append(stream, [draft]),), (fences.held(COMMAND, grant.lease.proof),)))

    async def complete(
        self, grant: CommandGrant, report: CommandEnded, *, worker: str, take_next: bool
    ) -> CommandGrant | None:
        """Record an end and what follows, once it is known to be one that the command can come to."""
        step = await self._step(grant)
        report, refs = reports.end(grant, report, step, worker)
        await self._references.check(self._scope, refs)
        return await self._complete(grant, report, worker=worker, take_next=take_next)

    async def _step(self, grant: CommandGrant) -> Step:
        return (await self.playbook(grant.catalog_id)).steps[grant.step]

    async def _complete(
        self, grant: CommandGrant, report: CommandEnded, *, worker: str, take_next: bool
    ) -> CommandGrant | None:
        fence = fences.held(COMMAND, grant.lease.proof)
        loop = grant.loop
        if report.ref is not None:
            report = msgspec.structs.replace(report, near=place_of(worker))

        async def tally(_state: Any) -> Any:
            assert loop is not None
            # A slot that failed ends what it could not work off; one that did well must have left nothing open.
            with_open = report.status == "error"
            return await self._frames.tally(
                self._scope, grant.execution_id, loop.stage_id, loop.loop_id, total=loop.total, with_open=with_open
            )

        if loop is not None and report.status == "ok" and await self._frames_in_hand(grant):
            raise await self._handed_back(grant)
        reach("complete.before_record")
        try:
            decided = await self._executions.trigger(
                self._scope,
                grant.execution_id,
                report,
                fences=(fence,),
                worker=worker if take_next else None,
                tally=None if loop is None else tally,
            )
        except FramesOpen:
            raise await self._handed_back(grant, FRAMES_OPEN_SECONDS) from None
        if not decided.facts:
            # Also where the execution has ended: who was to settle something once this is recorded must not.
            raise LeaseLost(f"command {grant.command_id} of execution {grant.execution_id} has ended already")
        return decided.grant

    async def _frames_in_hand(self, grant: CommandGrant) -> bool:
        """Tell whether a slot that ends still has frames: granted by an answer that never reached its worker."""
        return bool(await self._work.frames_of(self._scope, grant.execution_id, grant.command_id))

    async def _handed_back(self, grant: CommandGrant, delay_seconds: float = 0.0) -> LeaseLost:
        """Let another holder of a slot go on with the frames that are left, and return what its present one is told."""
        reason = "frames of the loop were left when it ended"
        await self.give_back(grant, reason, delay_seconds=delay_seconds, counts=False)
        return LeaseLost(f"command {grant.command_id} of execution {grant.execution_id} goes on: frames are left")

    async def give_back(self, grant: CommandGrant, reason: str, *, delay_seconds: float, counts: bool = True) -> None:
        """Record that an attempt came to nothing, or that it was handed back."""
        reason = reports.reason(reason, delay_seconds)
        loop = grant.loop
        at = (None, None) if loop is None else (loop.stage_id, loop.loop_id)
        if counts and await self._losses.exhausted(self._scope, grant, *at) is not None:
            error = {"kind": "unknown", "message": reason, "retryable": False, "code": "attempts_exhausted"}
            report = CommandEnded(command_id=grant.command_id, attempt=grant.attempt, status="error", error=error)
            await self._complete(grant, report, worker="", take_next=False)
            return
        word = "attempt_failed" if counts else "returned"
        stream = command_stream(self._scope, grant.execution_id, grant.issued_event_id)
        draft = self._drafting.one(
            self._scope, stream, grant.execution_id, f"command.{word}", f"command/{grant.command_id}",
            command_id=grant.command_id, meta={"attempt": grant.attempt, "delay_seconds": delay_seconds}, error=reason,
            idempotency_key=f"{grant.execution_id}/{grant.command_id}/{word}/{grant.attempt}",
        )  # fmt: skip
        fence = fences.held(COMMAND, grant.lease.proof)
        lost, theirs = await self._frames.given_up(self._scope, grant.execution_id, grant.command_id, may_fail=counts)
        await self._ledger.transact(Transition((Append(stream, [draft]), *lost), (fence, *theirs)))
        if loop is not None:
            self._frames.lost(loop.stage_id)
        self._signal.touch()

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Renew leases with the database's clock, all of a worker's in two statements."""
        lost: list[LeaseRef] = []
        for kind in (COMMAND, FRAME):
            held = {lease.proof: lease for lease in leases if lease.table == kind.table}
            if held:
                kept = await self._work.renew(self._scope, kind, list(held))
                lost += [lease for proof, lease in held.items() if proof not in kept]
        return lost

    async def lost(self, leases: Sequence[LeaseRef], so_far: Sequence[FrameSoFar] = ()) -> list[LeaseRef]:
        """Look which commands are leased to somebody else, or have ended."""
        self._so_far.tell(self._scope, so_far)
        held = {lease.proof: lease for lease in leases if lease.table == "command"}
        gone = await self._work.gone(self._scope, COMMAND, list(held)) if held else ()
        return [lease for proof, lease in held.items() if proof in gone]

    async def next_frame(self, grant: CommandGrant, worker: str, wish: Wish | None = None) -> FrameGrant | None:
        """Lease the next frame of a slot's stage."""
        return await self._frames.next(self._scope, grant, worker, wish=wish)

    async def dispatch_rows(self, grant: CommandGrant, worker: str, rows: PayloadRef, row_count: int) -> FrameGrant:
        """Record claimed rows as a frame."""
        return await self._frames.dispatch_rows(self._scope, grant, worker, rows, row_count)

    async def commit_frame(
        self, grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
    ) -> FrameGrant | None:
        """Record what a frame came to."""
        return await self._frames.commit(self._scope, grant, frame, report, worker=worker, take_next=take_next)

    async def fail_frame(self, frame: FrameGrant, error: dict[str, Any], *, max_attempts: int, worker: str) -> None:
        """Record that an attempt at a frame failed."""
        await self._frames.fail(self._scope, frame, error, max_attempts=max_attempts, worker=worker)

    async def checkpoint(self, frame: FrameGrant, cursor: dict[str, Any]) -> None:
        """Record how far a frame got."""
        await self._frames.checkpoint(self._scope, frame, cursor)

    async def playbook(self, catalog_id: str) -> Playbook:
        """Return a playbook version."""
        return (await self._catalog.plan(self._scope, catalog_id)).playbook

    async def run_child(self, grant: CommandGrant, child: Child) -> ChildEnd:
        """Run a child execution to its end."""
        reports.child(grant, child, await self._step(grant))
        return await self._children.run(self._scope, grant, child)

    async def reference(self, locator: str) -> PayloadRef:
        """Look the payload up in the ledger."""
        return await self._facts.payload_at(self._scope, locator)

    async def loop_ctx(self, grant: CommandGrant) -> dict[str, Any]:
        """Return what committed frames have set."""
        assert grant.loop is not None
        return await self._frames.ctx(self._scope, grant.execution_id, grant.loop.stage_id)

    async def ended(self, executions: Sequence[int]) -> list[int]:
        """Return those that are not among the open ones."""
        return await self._open.ended(self._scope, executions)
