"""One slot of a loop: takes frame after frame of its stage and works them off until there are none left.

Rows are worked off one frame after the other. In a cursor, what surrounds them is not waited for: the next frame is claimed
and recorded beside the last rows of the one before, and the end of a frame (what its rows left for it, and its commit) is made
beside the first rows of the next.

A worker that stops takes no other frame: its slot works off the one in hand, and hands the others back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport, FrameSoFar, LeaseRef
from noetl.engine.dispatch.large_values import Kept, kept_small, made_whole
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.plan.state import written
from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.plain import plain
from noetl.engine.worker.compiled_step import CompiledStep
from noetl.engine.worker.frame_rows import FrameEnd, FrameRun, RunChild
from noetl.engine.worker.held_work import HeldFrame, HeldFrames
from noetl.engine.worker.reports import defect_of, ends_of, problem_fields, table_of
from noetl.engine.worker.row_claims import RowClaims
from noetl.engine.worker.services import Services
from noetl.errors import LeaseLost, NoetlError
from noetl.faults import reach
from noetl.kernel.leases.heartbeats import Holding
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, decode_json, encode_json
from noetl.kernel.payloads.consumers import producing
from noetl.language.playbook.model import Playbook, Step
from noetl.language.templates.scopes import Names
from noetl.model.payload_ref import PayloadRef

_log = logging.getLogger(__name__)

SHOWN_ERRORS = 5
AHEAD_SECONDS = 2.0
"""How long a slot claims the rows of its next frame ahead before it looks for frames that others have lost."""


class Slot:
    """Works at one stage for one worker."""

    def __init__(
        self,
        services: Services,
        dispatch: Dispatch,
        heartbeats: Holding[LeaseRef],
        worker: str,
        grant: CommandGrant,
        playbook: Playbook,
        compiled: CompiledStep,
        names: Names,
        children: RunChild,
        on_rows: Callable[[CommandGrant, int, int], None],
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self._services = services
        self._dispatch = dispatch
        self._frames = HeldFrames(heartbeats)
        self._worker = worker
        self._grant = grant
        self._step: Step = playbook.steps[grant.step]
        self._compiled = compiled
        self._names = names
        self._children = children
        self._on_rows = on_rows
        self._stops = stops
        assert grant.loop is not None
        self._loop = grant.loop
        self._collection: list[Any] | None = None
        is_cursor = self._loop.mode == "cursor"
        self._claims = RowClaims(services, grant, self._step, compiled) if is_cursor else None
        # A claim sees what the frames before it have set, and one made ahead would not.
        self._claims_ahead = is_cursor and not compiled.sets_ctx
        self._ahead_until = 0.0
        self._following: asyncio.Task[HeldFrame | None] | None = None
        """The claim of the next frame, made while another is worked off."""
        self._recording: asyncio.Task[None] | None = None
        """The end of the frame before, on its way to the ledger while another is worked off."""

    @property
    def claims(self) -> int:
        """How many claims this slot made that returned rows."""
        return 0 if self._claims is None else self._claims.made

    def so_far(self, leases: Collection[LeaseRef]) -> list[FrameSoFar]:
        """Say how far the frames under some leases are."""
        return self._frames.so_far(leases)

    async def work(self) -> bool:
        """Work off frames until there are none, or the worker stops; what fails is recorded with its frame.

        Tells whether there are none left; otherwise the slot, with the frames it holds, is to be handed back.
        """
        if self._loop.mode == "sequential":
            writes = await self._dispatch.loop_ctx(self._grant)
            self._names.put_ctx(written(self._names["ctx"], writes), writes)
        try:
            held = await self._next()
            while not self._stops() and (held := held or await self._ahead_or_now()) is not None:
                held = await self._one(held)
            await self._recorded()
            if not self._stops():
                return True
            await self._let_go(stops_recording=False)
            return False
        except BaseException as problem:
            await self._let_go(stops_recording=isinstance(problem, asyncio.CancelledError))
            raise

    async def _let_go(self, *, stops_recording: bool) -> None:
        """End what goes on beside the work: the slot failed, is handed back, or is ours no longer."""
        for task in (self._following, self._recording if stops_recording else None):
            if task is not None:
                task.cancel()
        beside = [task for task in (self._following, self._recording) if task is not None]
        await asyncio.gather(*beside, return_exceptions=True)
        self._frames.release_all()

    async def _next(self) -> HeldFrame | None:
        """Take a frame that nobody works on any more, or the next rows of the collection."""
        if self._stops():
            return None
        self._ahead_until = self._services.monotonic() + AHEAD_SECONDS
        return self._frames.hold(await self._dispatch.next_frame(self._grant, self._worker))

    async def _one(self, held: HeldFrame) -> HeldFrame | None:
        """Work off one frame under its own lease and return the next, if there is one already."""
        frame = held.frame
        # What the task stores is stored in this frame's name, and lies in the node's memory as long as its lease.
        proves = bool(self._loop.frame.get("verify_ipc"))
        with producing(self._grant.execution_id, frame.frame_id, frame.lease_seconds, proves=proves):
            work = held.begin(self._frame(held))
        try:
            return await work
        except LeaseLost:
            pass
        except asyncio.CancelledError:
            # The slot may be lost at the same moment as its frame, and then it goes on with nothing.
            working = asyncio.current_task()
            if not held.is_lost or (working is not None and working.cancelling()):
                work.cancel()
                await asyncio.wait([work])
                raise
        finally:
            if not held.is_recording:
                self._frames.release(held)
        # Somebody else has this frame now; the slot goes on with another.
        return await self._next()

    async def _frame(self, held: HeldFrame) -> HeldFrame | None:
        frame = held.frame

        async def save(end: FrameEnd) -> None:
            kept = await self._kept(end)
            cursor = {"done": len(end.rows), "swallowed": end.swallowed, "set": kept.writes}
            if end.artifacts:
                cursor["artifacts"] = [msgspec.to_builtins(ref) for ref in end.artifacts.values()]
            output = await self._stored_table(end)
            await self._dispatch.checkpoint(frame, {**cursor, "output": msgspec.to_builtins(output)})

        goes_ahead = self._claims_ahead and self._services.monotonic() < self._ahead_until and not self._stops()
        try:
            rows = await self._rows_of(frame) if held.rows is None else held.rows
            run = held.run = FrameRun(
                self._services, self._grant, self._step, self._compiled, self._names, frame, self._children, save,
                nearly_done=self._claim_ahead if goes_ahead else None,
            )  # fmt: skip
            end = await run.work(rows, await self._before(frame))
            if not goes_ahead or end.error is not None or len(end.rows) < frame.row_count:
                await run.finish()
                problem = end.error or self._tried_again_for(frame, end)
                if problem is None:
                    return await self._commit(held, rows, end)
                await self._failed(held, problem)
                return await self._next()
        except Exception as problem:
            await self._defect(held, problem)
            return await self._next()
        return await self._go_ahead(held, run)

    def _tried_again_for(self, frame: FrameGrant, end: FrameEnd) -> Problem | None:
        """Return why a shard is tried again: a row of it failed, and it has attempts left."""
        if frame.shard_id is None or frame.attempt >= self._loop.frame["max_attempts"]:
            return None
        return next((row.error for row in end.rows if row.error is not None), None)

    async def _go_ahead(self, held: HeldFrame, run: FrameRun) -> HeldFrame | None:
        """Go on with the next frame as soon as its rows are claimed, and leave the end of this one to be made beside it."""
        if not self._stops():
            self._claim_ahead()
        await self._recorded()
        held.is_recording = True
        self._recording = asyncio.get_running_loop().create_task(self._record(held, run))
        following = await self._ahead()
        if following is None:
            await self._recorded()
            return await self._next()
        return following

    async def _ahead(self) -> HeldFrame | None:
        """Return the frame that was claimed ahead, if any was."""
        if self._following is None:
            return None
        # Shielded, so that whoever stops one frame leaves it to the slot what becomes of the next.
        following = await asyncio.shield(self._following)
        self._following = None
        return following

    async def _ahead_or_now(self) -> HeldFrame | None:
        """Return the frame that was claimed ahead, or claim one now."""
        return None if self._claims is None else await self._ahead() or await self._claimed()

    def _claim_ahead(self) -> None:
        """Begin to claim the next frame, unless that has begun."""
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._claimed())

    async def _recorded(self) -> None:
        """Wait until the end of the frame before is in the ledger, or learn why it is not."""
        if self._recording is not None:
            await asyncio.shield(self._recording)
            self._recording = None

    async def _record(self, held: HeldFrame, run: FrameRun) -> None:
        """Do what a frame's rows left for its end, and commit it, while another is worked off."""
        end = run.end
        try:
            await held.while_held(run.finish())
            report = await self._report(end, await self._stored_table(end))
            await self._committed(held, end, report, take_next=False)
        except LeaseLost:
            _log.info("frame %s was taken away before its end was recorded", held.frame.frame_id)
        except Exception as problem:
            await self._defect(held, problem)
        finally:
            self._frames.release(held)

    async def _before(self, frame: FrameGrant) -> FrameEnd:
        """Return what an earlier try has left to go on from."""
        kept = frame.checkpoint or {}
        if "output" not in kept:
            return FrameEnd()
        data = await self._services.store.view(self._services.scope, msgspec.convert(kept["output"], PayloadRef))
        stored = msgspec.convert(kept.get("artifacts", []), list[PayloadRef])
        writes = await made_whole(self._services.store, self._services.scope, kept["set"])
        return FrameEnd(ends_of(data), kept["swallowed"], writes, {ref.sha256: ref for ref in stored})

    async def _defect(self, held: HeldFrame, problem: Exception) -> None:
        """Record that a frame failed of something nobody foresaw; what may pass by itself is raised again."""
        if isinstance(problem, NoetlError) and problem.disposition != "terminal":
            raise problem
        await self._failed(held, defect_of(self._services, held.frame.step, problem))

    async def _failed(self, held: HeldFrame, problem: Problem) -> None:
        held.is_reported = True
        await self._dispatch.fail_frame(
            held.frame,
            self._redact(problem_fields(problem)),
            max_attempts=self._loop.frame["max_attempts"],
            worker=self._worker,
        )

    async def _commit(self, held: HeldFrame, rows: list[Any], end: FrameEnd) -> HeldFrame | None:
        report = await self._report(end, await self._stored_table(end))
        has_rest = len(end.rows) < held.frame.row_count
        if has_rest and self._loop.rows_ref is None:
            # It was full before its last row: what is left goes on as a frame of its own.
            report = msgspec.structs.replace(report, rest=await self._stored(rows[report.row_count :]))
        self._ahead_until = self._services.monotonic() + AHEAD_SECONDS
        # What is left of a frame becomes a frame of its own only together with its lease, also where the worker stops.
        return await self._committed(held, end, report, take_next=has_rest or not self._stops())

    async def _committed(
        self, held: HeldFrame, end: FrameEnd, report: FrameReport, *, take_next: bool
    ) -> HeldFrame | None:
        held.is_reported = True
        following = await self._dispatch.commit_frame(
            self._grant, held.frame, report, worker=self._worker, take_next=take_next
        )
        self._names.put_ctx(written(self._names["ctx"], end.ctx_writes), end.ctx_writes)
        self._on_rows(self._grant, report.row_count - report.failed_count, report.failed_count)
        return self._frames.hold(following)

    async def _kept(self, end: FrameEnd) -> Kept:
        """Return what the rows have set, as events carry it."""
        if not end.ctx_writes:
            return Kept({})
        return await kept_small(self._services.store, self._services.scope, self._redact(plain(end.ctx_writes)))

    async def _report(self, end: FrameEnd, output: PayloadRef) -> FrameReport:
        redact, kept = self._redact, await self._kept(end)
        failed = [row for row in end.rows if row.status == "error"]
        return FrameReport(
            row_count=len(end.rows),
            failed_count=len(failed),
            swallowed=end.swallowed,
            output=output,
            ctx_writes=kept.writes,
            artifacts=tuple({**end.artifacts, **{ref.sha256: ref for ref in kept.refs}}.values()),
            errors=[
                {"index": row.index, **redact(problem_fields(row.error))}
                for row in failed[:SHOWN_ERRORS]
                if row.error is not None
            ],
        )

    async def _rows_of(self, frame: FrameGrant) -> list[Any]:
        if frame.rows_ref is not None:
            return await self._fetched(frame.rows_ref)
        if self._collection is None:
            assert self._loop.rows_ref is not None
            self._collection = await self._fetched(self._loop.rows_ref)
        return self._collection[frame.first_index : frame.first_index + frame.row_count]

    async def _fetched(self, ref: PayloadRef) -> list[Any]:
        rows = decode_json(await self._services.store.fetch(self._services.scope, ref))
        assert isinstance(rows, list)
        return rows

    async def _stored_table(self, end: FrameEnd) -> PayloadRef:
        table = table_of(end.results, self._redact)
        return await self._services.store.store(
            self._services.scope, table.data, ARROW_STREAM, rows=table.rows, schema_digest=table.schema_digest
        )

    def _redact(self, value: Any) -> Any:
        return self._services.secrets.redaction.redact(value)

    async def _stored(self, rows: list[Any]) -> PayloadRef:
        return await self._services.store.store(self._services.scope, encode_json(rows), JSON, rows=len(rows))

    async def _claimed(self) -> HeldFrame | None:
        """Claim rows in the user's database; they are named in the ledger before the claim is made to last."""
        assert self._claims is not None
        async with self._claims.open(self._names) as claimed:
            if claimed is None:
                return None
            frame = await self._dispatch.dispatch_rows(self._grant, self._worker, claimed.ref, len(claimed.rows))
            held = self._frames.hold(frame, claimed.rows)
            reach("rows.after_dispatch")
            await claimed.keep()
            return held
