"""One slot of a loop: takes frame after frame of its stage and works them off until there are none left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from noetl.dispatch.grants import CommandGrant, FrameGrant, FrameReport, LeaseRef
from noetl.dispatch.port import Dispatch
from noetl.errors import LeaseLost, NoetlError
from noetl.execute.calls import call_maker
from noetl.execute.compiled import CompiledStep
from noetl.execute.frame_rows import FrameEnd, FrameRun, RunChild
from noetl.execute.gathered import ends_of, table_of
from noetl.execute.keeper import Holding
from noetl.execute.outcome import Problem
from noetl.execute.reporting import defect_of, problem_fields
from noetl.execute.services import Services
from noetl.execute.tools.postgres_claim import ClaimFailed, open_claim
from noetl.faults import reach
from noetl.model.payload_ref import PayloadRef
from noetl.payloads.codec import ARROW_STREAM, JSON, decode_json, encode_json
from noetl.payloads.origin import producing
from noetl.plan.state import written
from noetl.playbook.model import Playbook, Step
from noetl.playbook.scopes import Names
from noetl.playbook.templates import compile_value

SHOWN_ERRORS = 5


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
        self.claims = 0
        """How many claims this slot made that returned rows."""

    async def work(self) -> None:
        """Work off frames until there are none; what fails is recorded with its frame."""
        if self._loop.mode == "sequential":
            self._names["ctx"] = written(self._names["ctx"], await self._dispatch.loop_ctx(self._grant))
        frame = await self._dispatch.next_frame(self._grant, self._worker)
        while True:
            if frame is None and self._loop.mode == "cursor":
                frame, rows = await self._claimed()
            else:
                rows = None
            if frame is None:
                return
            frame = await self._one(frame, rows)

    async def _one(self, frame: FrameGrant, rows: list[Any] | None) -> FrameGrant | None:
        """Work off one frame under its own lease and return the next, if its commit handed one out."""
        # What the task stores is stored in this frame's name, and lies in the node's memory as long as its lease.
        proves = bool(self._loop.frame.get("verify_ipc"))
        with producing(self._grant.execution_id, frame.frame_id, frame.lease_seconds, proves=proves):
            work = asyncio.get_running_loop().create_task(self._frame(frame, rows))
        lost = False

        def stop() -> None:
            nonlocal lost
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
        return await self._dispatch.next_frame(self._grant, self._worker)

    async def _frame(self, frame: FrameGrant, rows: list[Any] | None) -> FrameGrant | None:
        async def save(end: FrameEnd) -> None:
            cursor = {"done": len(end.rows), "swallowed": end.swallowed, "set": self._redact(end.ctx_writes)}
            output = await self._stored_table(end)
            await self._dispatch.checkpoint(frame, {**cursor, "output": msgspec.to_builtins(output)})

        try:
            rows = await self._rows_of(frame) if rows is None else rows
            run = FrameRun(
                self._services, self._grant, self._step, self._compiled, self._names, frame, self._children, save
            )
            end = await run.work(rows, await self._before(frame))
            if end.error is not None:
                return await self._failed(frame, end.error)
            return await self._commit(frame, rows, end)
        except Exception as problem:
            if isinstance(problem, NoetlError) and problem.disposition != "terminal":
                raise
            return await self._failed(frame, defect_of(self._services, frame.step, problem))

    async def _before(self, frame: FrameGrant) -> FrameEnd:
        """Return what an earlier try has left to go on from."""
        kept = frame.checkpoint or {}
        if "output" not in kept:
            return FrameEnd()
        data = await self._services.store.view(self._services.scope, msgspec.convert(kept["output"], PayloadRef))
        return FrameEnd(ends_of(data), kept["swallowed"], kept["set"])

    async def _failed(self, frame: FrameGrant, problem: Problem) -> FrameGrant | None:
        await self._dispatch.fail_frame(
            frame,
            self._redact(problem_fields(problem)),
            max_attempts=self._loop.frame["max_attempts"],
            worker=self._worker,
        )
        return await self._dispatch.next_frame(self._grant, self._worker)

    async def _commit(self, frame: FrameGrant, rows: list[Any], end: FrameEnd) -> FrameGrant | None:
        redact = self._redact
        failed = [row for row in end.rows if row.status == "error"]
        report = FrameReport(
            row_count=len(end.rows),
            failed_count=len(failed),
            swallowed=end.swallowed,
            output=await self._stored_table(end),
            ctx_writes=redact(end.ctx_writes) if end.ctx_writes else {},
            errors=[
                {"index": row.index, **redact(problem_fields(row.error))}
                for row in failed[:SHOWN_ERRORS]
                if row.error is not None
            ],
        )
        if report.row_count < frame.row_count and self._loop.rows_ref is None:
            # It was full before its last row: what is left goes on as a frame of its own.
            report = msgspec.structs.replace(report, rest=await self._stored(rows[report.row_count :]))
        following = await self._dispatch.commit_frame(self._grant, frame, report, worker=self._worker, take_next=True)
        self._names["ctx"] = written(self._names["ctx"], end.ctx_writes)
        self._on_rows(self._grant, len(end.rows) - len(failed), len(failed))
        return following

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

    async def _claimed(self) -> tuple[FrameGrant | None, list[Any] | None]:
        """Claim rows in the user's database; they are named in the ledger before the claim is made to last."""
        cursor = self._step.loop and self._step.loop.cursor
        assert cursor
        if cursor.kind != "postgres":
            raise ClaimFailed(Problem(kind="schema", message=f"a cursor of kind {cursor.kind!r} is not supported"))
        names = self._names.for_run(__frame_max_rows=self._loop.frame["max_rows"])
        where = f"step {self._step.name}, field loop.cursor"
        rendered = compile_value({"claim": cursor.claim, "auth": cursor.auth, "options": cursor.options}, where).render(
            names
        )
        call = call_maker(self._services, self._grant, "claim")(
            task=msgspec.structs.replace(self._compiled.tasks[0], name="claim"),
            run=1,
            kind="postgres",
            options={"command": rendered["claim"]},
            input={},
            auth=rendered["auth"],
            scope=names,
            timeout=None,
        )
        async with open_claim(call) as claim:
            rows = await claim.rows()
            if not rows:
                await claim.commit()
                return None, None
            self.claims += 1
            reach("rows.after_claim")
            ref = await self._stored(rows)
            frame = await self._dispatch.dispatch_rows(self._grant, self._worker, ref, len(rows))
            reach("rows.after_dispatch")
            await claim.commit()
        return frame, rows
