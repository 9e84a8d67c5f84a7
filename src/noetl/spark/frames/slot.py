"""The slot inside an executor: the one that workers have, with leases kept from a thread of its own.

Whatever ends it before the last frame is told as a value: the worker that holds the command decides what follows.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, cast

import msgspec

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport, LeaseRef
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.platform.dispatch import PatientDispatch
from noetl.engine.platform.payloads import PatientPayloads
from noetl.engine.platform.secrets import PatientSecrets
from noetl.engine.platform.waits import Waits, waiting_by
from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.postgres.claim import ClaimFailed
from noetl.engine.worker.child_calls import run_child
from noetl.engine.worker.reports import defect_of
from noetl.engine.worker.services import Services
from noetl.engine.worker.slot import Slot
from noetl.engine.worker.step_names import names_for
from noetl.errors import LeaseLost, NoetlError, OutsideUnavailable
from noetl.kernel.leases.heartbeats import Heartbeats, Renewing
from noetl.model.payload_ref import PayloadRef
from noetl.spark.frames.executor_task import LaneWork, Reach, opened

BEAT_SECONDS: Final = 5.0


class LaneEnd(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How one lane ended."""

    rows_done: int = 0
    rows_failed: int = 0
    claims: int = 0
    lost: bool = False
    """Its command is somebody else's now."""
    again: str | None = None
    """Why another attempt may do better."""
    counts: bool = False
    """Whether this one counts, because what failed is not the platform's."""
    problem: Problem | None = None


class Committing:
    """A dispatch that takes note of the results of frames as they are committed."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self.results: list[tuple[int, PayloadRef]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatch, name)

    async def commit_frame(
        self, grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
    ) -> FrameGrant | None:
        """Record what a frame came to, and remember it."""
        following = await self._dispatch.commit_frame(grant, frame, report, worker=worker, take_next=take_next)
        if report.output is not None:
            self.results.append((frame.frame_index, report.output))
        return following


def run(work: LaneWork, worker: str, *, is_retry: bool) -> tuple[list[tuple[int, str]], str]:
    """Work off frames in this process and return their references and how it ended, both as JSON."""
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        results, end = runner.run(worked_off(work, worker, is_retry=is_retry))
    references = [(index, json.dumps(msgspec.to_builtins(ref))) for index, ref in results]
    return references, msgspec.json.encode(end).decode()


async def worked_off(work: LaneWork, worker: str, *, is_retry: bool) -> tuple[list[tuple[int, PayloadRef]], LaneEnd]:
    """Work off frames until there are none; a lane that Spark runs again names also what its first try committed."""
    reach = opened(work.reach)
    grant = msgspec.msgpack.decode(work.grant, type=CommandGrant)
    end = LaneEnd()
    async with reach.work() as (services, dispatch):
        noting = Committing(PatientDispatch(dispatch))
        store, known = PatientPayloads(services.store), PatientSecrets(services.secrets)
        services = replace(services, store=store, secrets=known, find=noting.reference)

        async def tell(part: str, reason: str | None) -> None:
            # Lanes of one command do not know each other, so each tells under numbers of its own.
            await dispatch.stalled(grant, part, reason, secrets.randbelow(2**31))

        try:
            with waiting_by(Waits(tell, asyncio.sleep)):
                await _work(reach, services, cast("Dispatch", noting), grant, worker, end)
        except LeaseLost:
            end.lost = True
        except ClaimFailed as refused:
            if refused.problem.retryable:
                end.again, end.counts = refused.problem.message, True
            else:
                end.problem = refused.problem
        except NoetlError as error:
            if error.disposition == "terminal":
                end.problem = Problem(kind="transform", message=error.message, code=error.code)
            else:
                end.again, end.counts = error.message, isinstance(error, OutsideUnavailable)
        except Exception as error:
            end.problem = defect_of(services, grant.step, error)
        redact = services.secrets.redaction.redact
        end.again = end.again and redact(end.again)
        if end.problem is not None:
            end.problem = msgspec.structs.replace(end.problem, message=redact(end.problem.message))
        results = noting.results
        if is_retry:
            results = await reach.committed(grant, worker) or results
    return results, end


async def _work(
    reach: Reach, services: Services, dispatch: Dispatch, grant: CommandGrant, worker: str, end: LaneEnd
) -> None:
    def on_rows(_grant: CommandGrant, done: int, failed: int) -> None:
        end.rows_done += done
        end.rows_failed += failed

    async def children(task: Any, call: Any) -> Outcome:
        return await run_child(dispatch, services.secrets.redaction, grant, task, call)

    playbook = await dispatch.playbook(grant.catalog_id)
    keeper = KeeperThread(reach.beats, every_seconds=BEAT_SECONDS)
    keeper.start()
    try:
        slot = Slot(
            services, dispatch, keeper, worker, grant, playbook, services.steps.get(playbook, grant.step),
            await names_for(services, grant, playbook), children, on_rows,
        )  # fmt: skip
        try:
            await slot.work()
        finally:
            end.claims = slot.claims
    finally:
        await keeper.stop()


Beats = Callable[[], AbstractAsyncContextManager[Renewing[LeaseRef]]]
"""Connects whoever renews leases; called in the thread."""


class KeeperThread:
    """Holds leases for the event loop that starts it."""

    def __init__(self, beats: Beats, *, every_seconds: float) -> None:
        self._beats = beats
        self._thread = threading.Thread(target=self._run, name="noetl-heartbeat", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._keeper: Heartbeats[LeaseRef] = Heartbeats(self, every_seconds=every_seconds, clock=time.monotonic)
        self._renewing: Renewing[LeaseRef] | None = None
        self._home: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to beat; what is lost is told in the event loop that called this."""
        self._home = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Beat no more."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    def hold(self, lease: LeaseRef, seconds: float, lost: Callable[[], None]) -> None:
        """Keep a lease that was granted just now; `lost` is called if it cannot be kept."""
        home = self._home
        assert home is not None, "start before holding"

        def tell() -> None:
            home.call_soon_threadsafe(lost)

        self._loop.call_soon_threadsafe(self._keeper.hold, lease, seconds, tell)

    def release(self, lease: LeaseRef) -> None:
        """Keep a lease no longer."""
        self._loop.call_soon_threadsafe(self._keeper.release, lease)

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Make leases last longer over the thread's own connection."""
        assert self._renewing is not None, "the thread connects before it beats"
        return await self._renewing.heartbeat(leases)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._beating())

    async def _beating(self) -> None:
        async with self._beats() as self._renewing:
            self._keeper.start()
            try:
                await self._stopped.wait()
            finally:
                await self._keeper.stop()
