"""Takes back what its holders lost, pushes on what stands still and stops what goes on for nobody: leases that ran out,
children nobody told about, executions whose time is over or with nothing open, children of executions that failed or were
cancelled. It looks at all organizations and acts within each.
"""

from __future__ import annotations

import logging
from typing import Any

from noetl.engine.dispatch.cascade import Cascade, Orphans
from noetl.engine.dispatch.children import Children
from noetl.engine.dispatch.drafts import Drafting, command_stream
from noetl.engine.dispatch.executions import Executions
from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.loops.frames import Frames, proof_of
from noetl.engine.dispatch.lost_attempts import Losses
from noetl.engine.dispatch.open_executions.port import OpenExecution, OpenExecutions
from noetl.engine.dispatch.open_work.port import HeldFrame, LostCommand, OpenWork, SuspendedCommand
from noetl.engine.dispatch.polling import Repeating, Signal
from noetl.engine.plan.state import State
from noetl.engine.plan.trigger import Cancelled, CommandEnded, Doubt, OutOfTime
from noetl.errors import UNREADABLE, Conflict, Corrupt, Erased, NoetlError, NotFound, PayloadMissing
from noetl.faults import reach
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import COMMAND, FRAME
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.lease import Proof
from noetl.model.stream import Scope

_log = logging.getLogger(__name__)


class Reaper:
    """Runs in every server, and in a single process too; any number may run at once."""

    def __init__(
        self,
        work: OpenWork,
        running: OpenExecutions,
        facts: Facts,
        ledger: Ledger,
        executions: Executions,
        frames: Frames,
        children: Children,
        orphans: Orphans,
        cascade: Cascade,
        drafting: Drafting,
        signal: Signal,
        *,
        every_seconds: float = 1.0,
        idle_seconds: float = 10.0,
    ) -> None:
        self._work = work
        self._open = running
        self._facts = facts
        self._ledger = ledger
        self._executions = executions
        self._frames = frames
        self._children = children
        self._orphans = orphans
        self._cascade = cascade
        self._drafting = drafting
        self._signal = signal
        self._losses = Losses(work, facts)
        self._every = every_seconds
        self._idle = idle_seconds
        self.frames_republished = 0
        """How many frames this process took back."""
        self.commands_republished = 0
        """How many commands this process took back."""
        self._repeating = Repeating("the reaper", self._look_once, every_seconds=every_seconds)

    def start(self) -> None:
        """Look again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._repeating.stop()

    async def _look_once(self) -> float:
        await self.sweep()
        return self._every

    async def sweep(self) -> int:
        """Look once and return how many things were taken back or pushed on."""
        done = 0
        for scope, frame in await self._work.expired_frames():
            done += await self._tried(self._frame(scope, frame), scope, frame.execution_id)
        for command in await self._work.expired_commands():
            done += await self._tried(self._command(command), command.scope, command.execution_id)
        for suspended in await self._work.forgotten(self._idle):
            done += await self._tried(self._suspended(suspended), suspended.scope, suspended.execution_id)
        for orphan in await self._open.orphans(self._idle, self._orphans.let_be):
            done += await self._tried(self._orphan(orphan), orphan.scope, orphan.execution_id)
        for late in await self._open.overdue():
            work = self._executions.trigger(late.scope, late.execution_id, OutOfTime())
            done += await self._tried(work, late.scope, late.execution_id)
        for idle in await self._open.idle(self._idle):
            work = self._executions.trigger(idle.scope, idle.execution_id, Doubt())
            done += await self._tried(work, idle.scope, idle.execution_id)
        return done

    async def _tried(self, work: Any, scope: Scope, execution_id: int) -> int:
        """Do one thing; whatever becomes of it, the others follow, for they may be another tenant's."""
        try:
            return 0 if await self._or_ended(work, scope, execution_id) is False else 1
        except (Conflict, NotFound):
            return 0  # its holder came back in time, or somebody else was quicker
        except NoetlError as problem:
            _log.warning("execution %s is looked at again later: %s", execution_id, problem.message)
        except Exception:
            _log.exception("execution %s is looked at again later", execution_id)
        return 0

    async def _or_ended(self, work: Any, scope: Scope, execution_id: int) -> Any:
        """Do one thing, or end the execution that it is about if that can never be read."""
        try:
            return await work
        except UNREADABLE as problem:
            try:
                await self._executions.state(scope, execution_id)
            except UNREADABLE as its_own:
                return await self._executions.fail_unread(scope, execution_id, its_own)
            # Something else cannot be read, which is no reason to end this one.
            _log.warning("execution %s is looked at again later: %s", execution_id, problem.message)
            return False

    async def _command(self, lost: LostCommand) -> None:
        scope, execution_id, attempt = lost.scope, lost.execution_id, lost.attempt
        fence = fences.expired(COMMAND, Proof((execution_id, lost.command_id), attempt, lost.lease_token))
        times = await self._losses.exhausted(scope, lost, lost.stage_id, lost.loop_id)
        if times is not None:
            report = CommandEnded(
                command_id=lost.command_id,
                attempt=attempt,
                status="error",
                error={
                    "kind": "timeout",
                    "message": _exhausted(lost, times),
                    "retryable": False,
                    "code": "attempts_exhausted",
                },
            )
            tally = None
            stage_id, loop_id = lost.stage_id, lost.loop_id
            if stage_id is not None and loop_id is not None:

                async def tally(_state: Any) -> Any:
                    return await self._frames.tally(scope, execution_id, stage_id, loop_id, with_open=True)

            await self._executions.trigger(scope, execution_id, report, fences=(fence,), tally=tally)
            return
        stream = command_stream(scope, execution_id, lost.issued_event_id)
        draft = self._drafting.one(
            scope, stream, execution_id, "command.abandoned", f"command/{lost.command_id}",
            command_id=lost.command_id, node_name=lost.step_name,
            meta={"attempt": attempt, "worker": lost.worker},
        )  # fmt: skip
        frames, theirs = await self._frames.given_up(scope, execution_id, lost.command_id)
        reach("reap.before_record")
        await self._ledger.transact(Transition((Append(stream, [draft]), *frames), (fence, *theirs)))
        reach("reap.after_record")
        if lost.stage_id is not None:
            self._frames.lost(lost.stage_id)
        self.commands_republished += 1
        self.frames_republished += len(frames)
        self._signal.touch()

    async def _frame(self, scope: Scope, frame: HeldFrame) -> None:
        fence = fences.expired(FRAME, proof_of(frame))
        reach("reap.before_record")
        await self._ledger.transact(Transition((self._frames.drafts.lost(scope, frame),), (fence,)))
        reach("reap.after_record")
        self.frames_republished += 1
        self._frames.lost(frame.stage_id)
        self._signal.touch()

    async def _orphan(self, orphan: OpenExecution) -> bool:
        """Stop an execution that goes on for nobody, with all that is below it."""
        parent_id = orphan.parent_execution_id
        assert parent_id is not None, "an orphan has had a parent"
        why = await self._orphans.why(orphan.scope, orphan.execution_id, parent_id)
        if why is None:
            return False
        wish = Cancelled(reason=why, by=f"execution/{parent_id}")
        return bool(await self._cascade.cancel(orphan.scope, orphan.execution_id, wish))

    async def _suspended(self, waiting: SuspendedCommand) -> None:
        scope, parent_id, command_id = waiting.scope, waiting.execution_id, waiting.command_id
        try:
            child = await self._executions.state(scope, waiting.child_execution_id)
        except PayloadMissing as problem:
            child = await self._unreadable(scope, waiting.child_execution_id, problem)
        except NotFound:
            issued = await self._facts.issued(scope, parent_id, command_id)
            assert issued is not None, "a row of a command stands only with its event"
            issued = await self._executions.whole(scope, issued)
            await self._children.start_suspended(scope, parent_id, command_id, issued.meta, issued.context)
            return
        except (Corrupt, Erased) as problem:
            child = await self._unreadable(scope, waiting.child_execution_id, problem)
        if child.ended:
            await self._children.resume(scope, parent_id, command_id, child)

    async def _unreadable(self, scope: Scope, child_id: int, problem: NoetlError) -> State:
        """Return the end of a child that can never be read: one that is open ends now, of another nobody can tell how."""
        await self._executions.fail_unread(scope, child_id, problem)
        return State(execution_id=child_id, status="FAILED", ended_with="execution.failed", error=problem.message)


def _exhausted(lost: LostCommand, times: int) -> str:
    message = f"its worker was lost {times} times, the last one was {lost.worker}"
    return message if lost.stage_id is None else f"{message}, and no frame was committed between"
