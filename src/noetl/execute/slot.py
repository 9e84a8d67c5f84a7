"""One slot of a loop: takes frame after frame of its stage and works them off until there are none left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple

import msgspec

from noetl.dispatch.grants import CommandGrant, FrameGrant, FrameReport, LeaseRef
from noetl.dispatch.port import Dispatch
from noetl.errors import LeaseLost, NoetlError
from noetl.execute.compiled import CompiledStep
from noetl.execute.frame_rows import FrameEnd, FrameRun, RunChild
from noetl.execute.gathered import ends_of, table_of
from noetl.execute.keeper import Holding
from noetl.execute.outcome import Problem
from noetl.execute.reporting import defect_of, problem_fields
from noetl.execute.row_claims import ClaimAhead, RowClaims
from noetl.execute.services import Services
from noetl.execute.tools.postgres_claim import ClaimFailed
from noetl.model.payload_ref import PayloadRef
from noetl.payloads.codec import ARROW_STREAM, JSON, decode_json, encode_json
from noetl.payloads.origin import producing
from noetl.plan.state import written
from noetl.playbook.model import Playbook, Step
from noetl.playbook.scopes import Names

SHOWN_ERRORS = 5
AHEAD_SECONDS = 2.0
"""How long a slot claims the rows of its next frame ahead before it looks for frames that others have lost."""


class Taken(NamedTuple):
    """A frame to work off, with its rows where they are known."""

    frame: FrameGrant
    rows: list[Any] | None = None


class Slot:
    """Works at one stage for one worker."""

    def __init__(
        self,
        services: Services,
        dispatch: Dispatch,
        keeper: Holding[LeaseRef],
        worker: str,
        grant: CommandGrant,
        playbook: Playbook,
        compiled: CompiledStep,
        names: Names,
        children: RunChild,
        on_rows: Callable[[CommandGrant, int, int], None],
    ) -> None:
        self._services = services
        self._dispatch = dispatch
        self._keeper = keeper
        self._worker = worker
        self._grant = grant
        self._step: Step = playbook.steps[grant.step]
        self._compiled = compiled
        self._names = names
        self._children = children
        self._on_rows = on_rows
        assert grant.loop is not None
        self._loop = grant.loop
        self._collection: list[Any] | None = None
        is_cursor = self._loop.mode == "cursor"
        self._claims = RowClaims(services, grant, self._step, compiled) if is_cursor else None
        self._ahead_until = 0.0
        self._claims_quickly = True
        self._reported: LeaseRef | None = None
        """The lease of the frame whose end was sent last."""

    @property
    def claims(self) -> int:
        """How many claims this slot made that returned rows."""
        return 0 if self._claims is None else self._claims.made

    async def work(self) -> None:
        """Work off frames until there are none; what fails is recorded with its frame."""
        if self._loop.mode == "sequential":
            self._names["ctx"] = written(self._names["ctx"], await self._dispatch.loop_ctx(self._grant))
        taken = await self._next()
        while True:
            if taken is None and self._claims is not None:
                taken = await self._claimed()
            if taken is None:
                return
            taken = await self._one(taken)

    async def _next(self) -> Taken | None:
        """Take a frame that nobody works on any more, or the next rows of the collection."""
        self._ahead_until = self._services.monotonic() + AHEAD_SECONDS
        frame = await self._dispatch.next_frame(self._grant, self._worker)
        return None if frame is None else Taken(frame)

    async def _one(self, taken: Taken) -> Taken | None:
        """Work off one frame under its own lease and return the next, if its commit handed one out."""
        frame = taken.frame
        # What the task stores is stored in this frame's name, and lies in the node's memory as long as its lease.
        proves = bool(self._loop.frame.get("verify_ipc"))
        with producing(self._grant.execution_id, frame.frame_id, frame.lease_seconds, proves=proves):
            work = asyncio.get_running_loop().create_task(self._frame(frame, taken.rows))
        lost = False

        def stop() -> None:
            nonlocal lost
            if self._reported == frame.lease:
                return  # its row is gone with its end, and the answer may hand over the next frame
            lost = True
            work.cancel()

        self._keeper.hold(frame.lease, frame.lease_seconds, stop)
        try:
            return await work
        except LeaseLost:
            lost = True
        except asyncio.CancelledError:
            # The slot may be lost at the same moment as its frame, and then it goes on with nothing.
            working = asyncio.current_task()
            if not lost or (working is not None and working.cancelling()):
                work.cancel()
                await asyncio.wait([work])
                raise
        finally:
            self._keeper.release(frame.lease)
        # Somebody else has this frame now; the slot goes on with another.
        return await self._next()

    async def _frame(self, frame: FrameGrant, rows: list[Any] | None) -> Taken | None:
        async def save(end: FrameEnd) -> None:
            cursor = {"done": len(end.rows), "swallowed": end.swallowed, "set": self._redact(end.ctx_writes)}
            output = await self._stored_table(end)
            await self._dispatch.checkpoint(frame, {**cursor, "output": msgspec.to_builtins(output)})

        try:
            async with self._claiming_ahead() as ahead:
                rows = await self._rows_of(frame) if rows is None else rows
                run = FrameRun(
                    self._services, self._grant, self._step, self._compiled, self._names, frame, self._children, save,
                    nearly_done=None if ahead is None else ahead.begin,
                )  # fmt: skip
                end = await run.work(rows, await self._before(frame))
                if end.error is not None:
                    return await self._failed(frame, end.error)
                return await self._commit(frame, rows, end, ahead)
        except ClaimFailed:
            raise  # the frame is committed; only the claim of the next one does not last
        except Exception as problem:
            if isinstance(problem, NoetlError) and problem.disposition != "terminal":
                raise
            return await self._failed(frame, defect_of(self._services, frame.step, problem))

    def _claiming_ahead(self) -> AbstractAsyncContextManager[ClaimAhead | None]:
        if self._claims is None or not self._claims_quickly or self._services.monotonic() >= self._ahead_until:
            return nullcontext()
        return ClaimAhead(self._claims, self._names.for_run())

    async def _before(self, frame: FrameGrant) -> FrameEnd:
        """Return what an earlier try has left to go on from."""
        kept = frame.checkpoint or {}
        if "output" not in kept:
            return FrameEnd()
        data = await self._services.store.view(self._services.scope, msgspec.convert(kept["output"], PayloadRef))
        return FrameEnd(ends_of(data), kept["swallowed"], kept["set"])

    async def _failed(self, frame: FrameGrant, problem: Problem) -> Taken | None:
        self._reported = frame.lease
        await self._dispatch.fail_frame(
            frame,
            self._redact(problem_fields(problem)),
            max_attempts=self._loop.frame["max_attempts"],
            worker=self._worker,
        )
        return await self._next()

    async def _commit(
        self, frame: FrameGrant, rows: list[Any], end: FrameEnd, ahead: ClaimAhead | None
    ) -> Taken | None:
        is_full = len(end.rows) < frame.row_count
        # A claim sees what the frames before it have set, and one made ahead did not.
        if ahead is not None and not is_full and not end.ctx_writes:
            return await self._commit_and_claim(ahead, frame, end)
        report = self._report(end, await self._stored_table(end))
        if is_full and self._loop.rows_ref is None:
            # It was full before its last row: what is left goes on as a frame of its own.
            report = msgspec.structs.replace(report, rest=await self._stored(rows[report.row_count :]))
        self._ahead_until = self._services.monotonic() + AHEAD_SECONDS
        following = await self._committed(frame, end, report)
        return None if following is None else Taken(following)

    async def _commit_and_claim(self, ahead: ClaimAhead, frame: FrameGrant, end: FrameEnd) -> Taken | None:
        """Commit a frame together with the dispatch of the next, whose rows are claimed by then."""
        ahead.begin()
        report = self._report(end, await self._stored_table(end))
        held = None
        try:
            held = await ahead.held()
        except TimeoutError:
            # What is done must not wait to be committed until others let go of their rows.
            self._claims_quickly = False
        except NoetlError:
            self._ahead_until = 0.0  # the claim that follows the commit tells what is wrong
        if held is not None:
            report = msgspec.structs.replace(report, claimed=held.claimed)
        following = await self._committed(frame, end, report)
        if following is None:
            return None
        if held is None or not held.became(following):
            return Taken(following)
        await held.keep()
        return Taken(following, held.rows)

    async def _committed(self, frame: FrameGrant, end: FrameEnd, report: FrameReport) -> FrameGrant | None:
        self._reported = frame.lease
        following = await self._dispatch.commit_frame(self._grant, frame, report, worker=self._worker, take_next=True)
        self._names["ctx"] = written(self._names["ctx"], end.ctx_writes)
        self._on_rows(self._grant, report.row_count - report.failed_count, report.failed_count)
        return following

    def _report(self, end: FrameEnd, output: PayloadRef) -> FrameReport:
        redact = self._redact
        failed = [row for row in end.rows if row.status == "error"]
        return FrameReport(
            row_count=len(end.rows),
            failed_count=len(failed),
            swallowed=end.swallowed,
            output=output,
            ctx_writes=redact(end.ctx_writes) if end.ctx_writes else {},
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
        table = table_of(end.rows, self._redact)
        return await self._services.store.store(
            self._services.scope, table.data, ARROW_STREAM, rows=table.rows, schema_digest=table.schema_digest
        )

    def _redact(self, value: Any) -> Any:
        return self._services.secrets.redaction.redact(value)

    async def _stored(self, rows: list[Any]) -> PayloadRef:
        return await self._services.store.store(self._services.scope, encode_json(rows), JSON, rows=len(rows))

    async def _claimed(self) -> Taken | None:
        """Claim rows in the user's database; they are named in the ledger before the claim is made to last."""
        assert self._claims is not None
        async with self._claims.held(self._names) as held:
            if held is None:
                return None
            claimed = held.claimed
            frame = await self._dispatch.dispatch_rows(self._grant, self._worker, claimed.rows, claimed.row_count)
            await held.keep()
            return Taken(frame, held.rows)
