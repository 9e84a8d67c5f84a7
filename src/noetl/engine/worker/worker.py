"""A worker: takes commands, runs them in its slots, reports what came of them, and stops at once what it may not do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from noetl.engine.dispatch.grants import CommandGrant, LeaseRef
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.plan.locality import Wish
from noetl.engine.plan.trigger import CommandEnded
from noetl.engine.platform.dispatch import PatientDispatch
from noetl.engine.platform.payloads import PatientPayloads
from noetl.engine.platform.secrets import PatientSecrets
from noetl.engine.platform.waits import waiting_by
from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.claim import ClaimFailed
from noetl.engine.worker.child_calls import run_child
from noetl.engine.worker.compiled_step import CompiledStep, CompiledTask, steps_read_by_task
from noetl.engine.worker.held_work import HeldCommand, Settling
from noetl.engine.worker.reports import defect_of, failure_of, report_of
from noetl.engine.worker.sequence import run_sequence
from noetl.engine.worker.services import Services, call_maker
from noetl.engine.worker.slot import Slot
from noetl.engine.worker.step_names import names_for
from noetl.errors import LeaseLost, NoetlError, NotFound, OutsideUnavailable, TemplateFailed
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.kernel.payloads.consumers import producing
from noetl.language.playbook.model import Playbook
from noetl.language.templates.scopes import Names
from noetl.language.templates.template import CompiledValue

_log = logging.getLogger(__name__)

GIVE_BACK_SECONDS = 1.0
MOST_SECONDS = 30.0
"""How long a command that came to nothing for what may pass waits at most before somebody tries it again."""
FULL_POLL_SECONDS = 1.0
"""How long one that has its fill of loops waits for other work before it asks again: a loop may have ended meanwhile."""


class Worker:
    """Runs up to `slots` commands at once, up to `most_loops` of them slots of loops, each with one frame in hand."""

    def __init__(
        self,
        name: str,
        dispatch: Dispatch,
        services: Services,
        *,
        slots: int,
        heartbeat_seconds: float = 5.0,
        poll_seconds: float = 20.0,
        on_rows: Callable[[CommandGrant, int, int], None] = lambda grant, done, failed: None,
        wish: Wish | None = None,
        most_loops: int | None = None,
    ) -> None:
        self.name = name
        # What the work needs of the platform is waited for; renewals and claims keep their own time.
        self._dispatch = patient = PatientDispatch(dispatch)
        store, secrets = PatientPayloads(services.store), PatientSecrets(services.secrets)
        self._services = replace(services, store=store, secrets=secrets, find=patient.reference)
        self._slots = slots
        self._poll = poll_seconds
        self._wish = wish
        # What a completion hands over comes from anywhere; who keeps near asks for everything by a claim.
        self._roams = wish is None or wish.max_distance == "any"
        self._on_rows = on_rows
        self._heartbeats: Heartbeats[LeaseRef] = Heartbeats(
            patient, every_seconds=heartbeat_seconds, clock=services.monotonic, look=self._lost
        )
        self._running: set[asyncio.Task[None]] = set()
        self._held: set[HeldCommand] = set()
        self._in_loops: set[Slot] = set()
        self._busy = 0
        self._most_loops = most_loops
        self._loops = 0
        """Slots of loops at work, and places kept for those that a claim or a completion under way may bring."""
        self._changed = asyncio.Event()
        self._stopping = False
        self._claiming: asyncio.Task[list[CommandGrant]] | None = None
        self.claims = 0
        """Claims of cursor loops that returned rows."""
        self.commands = 0
        """Commands that were taken, from the queue or handed over by a completion."""

    async def run(self) -> None:
        """Take and do work until stopped; what is under way when it is stopped is finished first."""
        self._heartbeats.start()
        try:
            while not self._stopping:
                free = self._slots - self._busy
                if free <= 0:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                for grant in await self._claimed(free):
                    self._start(grant)
        except asyncio.CancelledError:
            # Not asked to stop but told to: what is under way is stopped, too.
            for task in self._running:
                task.cancel()
            raise
        finally:
            await self._drain()

    async def stop(self) -> None:
        """Take nothing new; `run` returns once everything under way has ended, slots of loops with the frame in hand.

        What is ours no longer stops at once.
        """
        self._stopping = True
        self._changed.set()
        if self._claiming is not None:
            self._claiming.cancel()
        for held in self._held:
            held.let_go_if_stopping()
        await self._heartbeats.beat()

    async def _claimed(self, free: int) -> list[CommandGrant]:
        loops = None if self._most_loops is None else max(0, self._most_loops - self._loops)
        poll = min(self._poll, FULL_POLL_SECONDS) if loops == 0 else self._poll
        self._loops += loops or 0
        self._claiming = asyncio.get_running_loop().create_task(
            self._dispatch.claim(self.name, free, poll, self._wish, loops)
        )
        try:
            return await self._claiming
        except asyncio.CancelledError:
            if not self._stopping:
                self._claiming.cancel()
                raise
            return []
        except Exception as problem:
            # Whatever it was, a worker that no longer asks would look healthy and do nothing.
            expected = isinstance(problem, NoetlError)
            _log.warning("no work could be asked for: %s", problem, exc_info=None if expected else problem)
            await self._services.sleep(GIVE_BACK_SECONDS)
            return []
        finally:
            self._claiming = None
            self._loops -= loops or 0

    async def _lost(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Ask what was taken away, and say by the way how far longer frames are."""
        longer = frozenset(leases)
        return await self._dispatch.lost(leases, [one for slot in self._in_loops for one in slot.so_far(longer)])

    async def _drain(self) -> None:
        try:
            while self._running:
                await asyncio.wait(self._running)
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
            raise
        finally:
            await self._heartbeats.stop()

    def _start(self, grant: CommandGrant) -> None:
        self._busy += 1
        self._loops += grant.loop is not None
        task = asyncio.get_running_loop().create_task(self._work_on(grant), name=f"noetl-command-{grant.command_id}")
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._busy -= 1
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a command's work ended in an error of the worker", exc_info=task.exception())

    async def _work_on(self, grant: CommandGrant) -> None:
        """Do one command, then whatever its completion hands over, in the same slot."""
        while True:
            try:
                following = await self._one(grant)
            finally:
                self._loops -= grant.loop is not None
            if following is None:
                return
            grant = following
            self._loops += grant.loop is not None

    async def _one(self, grant: CommandGrant) -> CommandGrant | None:
        held = HeldCommand(grant, self._dispatch, self._services.sleep, lambda: self._stopping)
        settling = Settling()
        self.commands += 1
        self._held.add(held)
        self._heartbeats.hold(grant.lease, grant.lease_seconds, held.lose)
        try:
            with waiting_by(held.waits):
                return await self._under(held, grant, settling)
        except asyncio.CancelledError:
            if not held.goes_on():
                raise
            if held.is_returned:
                await self._returned(grant, "its worker stopped while the platform was away")
                return None
            _log.info("command %s of execution %s was taken away", grant.command_id, grant.execution_id)
            return None
        except (LeaseLost, NotFound):
            return None
        except _HandedBack:
            await self._returned(grant, "its worker stopped")
            return None
        except NoetlError as problem:
            reason = self._redacted(problem.message)
            _log.warning("command %s came to nothing: %s", grant.command_id, reason)
            delay = GIVE_BACK_SECONDS
            if problem.disposition == "transient":
                delay = min(MOST_SECONDS, GIVE_BACK_SECONDS * 2.0 ** min(grant.attempt - 1, 10))
                if not isinstance(problem, OutsideUnavailable):
                    # The platform's, and never the work's: none of the tries counts.
                    await self._returned(grant, reason, delay)
                    return None
            with suppress(NoetlError):
                await self._dispatch.give_back(grant, reason, delay_seconds=delay)
            return None
        finally:
            self._held.discard(held)
            self._heartbeats.release(grant.lease)
            await settling.settle(recorded=False)

    async def _under(self, held: HeldCommand, grant: CommandGrant, settling: Settling) -> CommandGrant | None:
        """Do a command under its lease, and report it."""
        proves = grant.loop is not None and bool(grant.loop.frame.get("verify_ipc"))
        with producing(grant.execution_id, 0, grant.lease_seconds, proves=proves):
            report = await self._report(grant, settling)
        held.is_reported = True
        takes = self._takes_next(grant)
        self._loops += takes
        try:
            following = await self._dispatch.complete(grant, report, worker=self.name, take_next=takes)
            await settling.settle(recorded=report.status == "ok")
            return following
        finally:
            self._loops -= takes

    async def _returned(self, grant: CommandGrant, reason: str, delay_seconds: float = 0.0) -> None:
        """Hand a command back for another worker to go on with; that is no failed attempt."""
        _log.info("command %s of execution %s is handed back: %s", grant.command_id, grant.execution_id, reason)
        with suppress(NoetlError):
            await self._dispatch.give_back(grant, reason, delay_seconds=delay_seconds, counts=False)

    @property
    def busy(self) -> int:
        """How many slots are at work."""
        return self._busy

    def _takes_next(self, grant: CommandGrant) -> bool:
        """Tell whether a completion may hand over what comes next; that may be a loop's slot, which needs room."""
        has_room = self._most_loops is None or self._loops - (grant.loop is not None) < self._most_loops
        return self._roams and not self._stopping and has_room

    async def _report(self, grant: CommandGrant, settling: Settling) -> CommandEnded:
        started = self._services.monotonic()
        try:
            playbook = await self._dispatch.playbook(grant.catalog_id)
            compiled = self._services.steps.get(playbook, grant.step)
            names = await names_for(self._services, grant, playbook)
            if compiled.timeout is None:
                return await self._done(grant, playbook, compiled, names, started, settling)
            async with self._time_limit(compiled.timeout, grant, names):
                return await self._done(grant, playbook, compiled, names, started, settling)
        except _HandedBack:
            raise
        except _TimedOut as over:
            problem = Problem(kind="timeout", message=str(over), code="step_timeout")
        except ClaimFailed as refused:
            if refused.problem.retryable:
                raise
            problem = refused.problem
        except NoetlError as error:
            if error.disposition != "terminal":
                raise
            problem = Problem(kind="transform", message=error.message, code=error.code)
        except Exception as error:
            # Whatever it was, the step ends with a reason instead of being tried until its worker counts as lost.
            problem = defect_of(self._services, grant.step, error)
        return failure_of(self._services, grant, problem, self._elapsed(started))

    async def _done(
        self,
        grant: CommandGrant,
        playbook: Playbook,
        compiled: CompiledStep,
        names: Names,
        started: float,
        settling: Settling,
    ) -> CommandEnded:
        if grant.loop is not None:
            return await self._slot(grant, playbook, compiled, names)
        result = await run_sequence(
            compiled,
            names,
            tools=self._services.tools,
            make_call=call_maker(self._services, grant, "step", settling),
            sleep=self._services.sleep,
            monotonic=self._services.monotonic,
            beside=self._services.beside,
            children=self._children(grant),
        )
        step = playbook.steps[grant.step]
        by_task = grant.step in steps_read_by_task(playbook)
        return await report_of(self._services, grant, step, result, self._elapsed(started), by_task=by_task)

    def _redacted(self, value: Any) -> Any:
        return self._services.secrets.redaction.redact(value)

    async def _slot(
        self, grant: CommandGrant, playbook: Playbook, compiled: CompiledStep, names: Names
    ) -> CommandEnded:
        started = self._services.monotonic()
        if grant.loop is not None and grant.loop.frame.get("runtime") == "spark":
            return await self._on_spark(grant)
        slot = Slot(
            self._services, self._dispatch, self._heartbeats, self.name, grant, playbook, compiled, names,
            self._children(grant), self._on_rows, stops=lambda: self._stopping,
        )  # fmt: skip
        self._in_loops.add(slot)
        try:
            if not await slot.work():
                raise _HandedBack
        finally:
            self._in_loops.discard(slot)
            self.claims += slot.claims
        return CommandEnded(
            command_id=grant.command_id, attempt=grant.attempt, status="ok", duration_ms=self._elapsed(started)
        )

    async def _on_spark(self, grant: CommandGrant) -> CommandEnded:
        """Have the frames worked off inside Spark's executors while this worker holds their command."""
        started = self._services.monotonic()
        if self._services.lanes is None:
            message = f"step {grant.step}: its frames run on Spark, and this worker has none"
            return failure_of(self._services, grant, Problem(kind="schema", message=message, code="spark_missing"), 0.0)
        end = await self._services.lanes.work(grant, self.name, partial(self._dispatch.started, grant))
        self.claims += end.claims
        self._on_rows(grant, end.rows_done, end.rows_failed)
        if end.problem is not None:
            return failure_of(self._services, grant, end.problem, self._elapsed(started))
        return CommandEnded(
            command_id=grant.command_id, attempt=grant.attempt, status="ok", duration_ms=self._elapsed(started)
        )

    def _elapsed(self, started: float) -> float:
        return round((self._services.monotonic() - started) * 1000, 3)

    @asynccontextmanager
    async def _time_limit(self, wanted: CompiledValue, grant: CommandGrant, names: Names) -> AsyncIterator[None]:
        given = await self._services.evaluating.run(self._services.scope, lambda: wanted.render(names))
        try:
            seconds = float(given)
        except (TypeError, ValueError):
            seconds = -1.0
        if isinstance(given, bool) or not seconds > 0:
            where = f"step {grant.step}, field spec.timeout"
            raise TemplateFailed(f"{where}: a number of seconds above 0 is needed", where=where)
        try:
            async with asyncio.timeout(seconds) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise _TimedOut(f"step {grant.step} took longer than its {seconds:g} s") from None

    def _children(self, grant: CommandGrant) -> Callable[[CompiledTask, Call], Any]:
        async def run(task: CompiledTask, call: Call) -> Outcome:
            # While it waits it holds no slot, so that its children can run even where everybody waits.
            self._busy -= 1
            self._changed.set()
            try:
                return await run_child(self._dispatch, self._services.secrets.redaction, grant, task, call)
            finally:
                self._busy += 1

        return run


class _TimedOut(Exception):
    """A step took longer than it may."""


class _HandedBack(Exception):
    """The worker stops, and others are to go on with a slot."""
