"""Frames of a stage: minted as workers ask, fenced when they end, two events each in the good case."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.large_values import made_whole
from noetl.engine.dispatch.loops.frame_drafts import FrameDrafts, has_failed, held
from noetl.engine.dispatch.loops.results import Gathering, first_problem
from noetl.engine.dispatch.open_work.port import HeldFrame, OpenWork
from noetl.engine.dispatch.reports import frames as reports
from noetl.engine.dispatch.reports.references import References
from noetl.engine.dispatch.reports.refusals import refuse
from noetl.engine.plan.locality import Claimant, Wish, claimant, closest, place_of
from noetl.engine.plan.trigger import Tally
from noetl.errors import Conflict, FramesOpen, LeaseLost, NotFound, VersionConflict
from noetl.faults import reach
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import COMMAND, FRAME
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.transition import Append, Fence, Transition
from noetl.kernel.payloads.codec import decode_json
from noetl.model.lease import Proof
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


@dataclass
class _Cursor:
    """How far a stage's rows are handed out, as far as this process knows; the ledger refuses what is wrong."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_index: int | None = None
    frames: int = 0
    may_have_free: bool = True


class NewRows(NamedTuple):
    """Rows that become a new frame, whatever else is free: those claimed elsewhere, or those a frame had no time for."""

    first_index: int | None
    """Where the first of them stands; None is behind all that were handed out."""
    row_count: int
    rows: PayloadRef | None
    """Where they are, unless they are part of the loop's collection."""


class Frames:
    """The frames of all stages, handed out by this process."""

    def __init__(
        self,
        work: OpenWork,
        facts: Facts,
        ledger: Ledger,
        drafting: Drafting,
        gathering: Gathering,
        references: References,
        touch: Callable[[], None],
    ) -> None:
        self._work = work
        self._facts = facts
        self._ledger = ledger
        self.drafts = FrameDrafts(drafting)
        """What is said about frames."""
        self._gathering = gathering
        self._references = references
        self._touch = touch
        self._cursors: OrderedDict[int, _Cursor] = OrderedDict()
        self.minted = 0
        """How many frames this process has dispatched for the first time."""

    async def next(
        self,
        scope: Scope,
        grant: CommandGrant,
        worker: str,
        ending: tuple[Append, Fence] | None = None,
        rest: NewRows | None = None,
        wish: Wish | None = None,
    ) -> FrameGrant | None:
        """Lease the free frame that lies nearest, or mint the next.

        `ending` is the commit of the former frame, recorded together with it; `rest` are rows it had no time for. `wish`
        says how near a free frame should be; without one the worker's name tells.
        """
        if await self._is_over(scope, grant):
            await self._transact((), (), ending)
            return None
        return await self._leased(scope, grant, worker, ending, rest, wish)

    async def _leased(
        self,
        scope: Scope,
        grant: CommandGrant,
        worker: str,
        ending: tuple[Append, Fence] | None,
        new: NewRows | None,
        wish: Wish | None = None,
    ) -> FrameGrant | None:
        loop = grant.loop
        assert loop is not None
        cursor, who = self._cursor(loop.stage_id), claimant(worker, wish)
        # The slot must still be the worker's: rows are claimed for it before the ledger is asked.
        slot = fences.held(COMMAND, grant.lease.proof)
        async with cursor.lock:
            while True:
                # Lanes on Spark are processes of their own, so what one of them remembers is nearly always out of date.
                if cursor.next_index is None or loop.frame.get("lanes", 1) > 1:
                    await self._refresh(scope, grant.execution_id, loop.stage_id, cursor)
                frame: FrameGrant | None
                if new is not None:
                    first = cursor.next_index or 0 if new.first_index is None else new.first_index
                    frame = self._fresh(grant, cursor.frames, first, new.row_count, new.rows)
                else:
                    frame = await self._free(scope, grant, cursor, who) if cursor.may_have_free else None
                if frame is None:
                    frame = self._minted(grant, cursor)
                if frame is None:
                    # Somebody may have lost a frame since: whoever ends its slot looks once more.
                    frame = await self._free(scope, grant, cursor, who)
                append: tuple[Append, ...] = ()
                relied_on: tuple[Fence, ...] = ()
                if frame is not None:
                    frame = msgspec.structs.replace(frame, worker=worker)
                    said, relied_on = self.drafts.dispatched(scope, grant, frame, worker)
                    append, relied_on = (said,), (*relied_on, slot)
                try:
                    await self._transact(append, relied_on, ending)
                except VersionConflict:
                    cursor.next_index, cursor.may_have_free = None, True
                    continue
                except LeaseLost:
                    if frame is None or (ending is not None and not await self._work.holds(scope, ending[1])):
                        raise
                    if not await self._work.holds(scope, slot):
                        # A slot that was lost gets no other frame; the one it has worked off is still its own, unless
                        # rows of it are left: they would go with it, so whoever gets the frame next works all of it off.
                        if new is None:
                            await self._transact((), (), ending)
                        raise
                    cursor.may_have_free = True
                    continue
                if frame is not None and frame.attempt == 1:
                    cursor.next_index = max(cursor.next_index or 0, frame.first_index + frame.row_count)
                    cursor.frames = frame.frame_index + 1
                    self.minted += 1
                return frame

    async def _transact(
        self, append: tuple[Append, ...], relied_on: tuple[Fence, ...], ending: tuple[Append, Fence] | None
    ) -> None:
        appends = (*((ending[0],) if ending else ()), *append)
        if appends:
            await self._ledger.transact(Transition(appends, (*((ending[1],) if ending else ()), *relied_on)))

    async def given_up(
        self, scope: Scope, execution_id: int, command_id: str, *, may_fail: bool = True
    ) -> tuple[tuple[Append, ...], tuple[Fence, ...]]:
        """Return what to record together with the loss of a slot: its frames are lost too, and free for its next holder.

        After its last attempt a frame fails with the loss, unless it may not: its slot was handed back, not lost.
        """
        rows = await self._work.frames_of(scope, execution_id, command_id)
        return tuple(self.drafts.lost(scope, row, may_fail=may_fail) for row in rows), tuple(
            (fences.expired if row.has_expired else fences.held)(FRAME, proof_of(row)) for row in rows
        )

    async def _is_over(self, scope: Scope, grant: CommandGrant) -> bool:
        """Tell whether a shard that failed makes the rest pointless."""
        loop = grant.loop
        if loop is None or not loop.frame.get("fail_fast"):
            return False
        stage = await self._work.stage(scope, grant.execution_id, loop.stage_id)
        return stage is None or stage.has_failed_fast

    def _minted(self, grant: CommandGrant, cursor: _Cursor) -> FrameGrant | None:
        loop = grant.loop
        assert loop is not None
        if loop.total is None or cursor.next_index is None or cursor.next_index >= loop.total:
            return None
        rows = min(loop.frame["max_rows"], loop.total - cursor.next_index)
        return self._fresh(grant, cursor.frames, cursor.next_index, rows)

    def _fresh(
        self, grant: CommandGrant, index: int, first: int, rows: int, ref: PayloadRef | None = None
    ) -> FrameGrant:
        loop = grant.loop
        assert loop is not None
        return FrameGrant(
            execution_id=grant.execution_id,
            step=grant.step,
            stage_id=loop.stage_id,
            loop_id=loop.loop_id,
            frame_id=frame_id_of(loop.stage_id, index),
            frame_index=index,
            first_index=first,
            row_count=rows,
            attempt=1,
            token=str(uuid.uuid4()),
            lease_seconds=loop.frame["lease_seconds"],
            shard_id=f"{loop.stage_id}-{index}" if loop.mode == "fanout" else None,
            rows_ref=ref,
            max_attempts=loop.frame.get("max_attempts"),
            command_id=grant.command_id,
        )

    async def _free(self, scope: Scope, grant: CommandGrant, cursor: _Cursor, who: Claimant) -> FrameGrant | None:
        loop = grant.loop
        assert loop is not None
        free = await self._work.free_frames(scope, grant.execution_id, loop.stage_id)
        cursor.may_have_free = bool(free)
        row = closest(who, ((place_of(one.held_by or ""), one) for one in free))
        if row is None:
            return None
        return msgspec.structs.replace(
            self._fresh(grant, row.frame_index, row.first_index, row.row_count),
            frame_id=row.frame_id,
            shard_id=row.shard_id,
            attempt=row.attempt + 1,
            rows_ref=row.input_ref,
            checkpoint=row.checkpoint,
        )

    async def dispatch_rows(
        self, scope: Scope, grant: CommandGrant, worker: str, rows: PayloadRef, row_count: int
    ) -> FrameGrant:
        """Record rows claimed in the user's database as a new frame."""
        await self._references.check(scope, reports.rows(grant, rows, row_count))
        frame = await self._leased(scope, grant, worker, None, NewRows(None, row_count, rows))
        assert frame is not None
        return frame

    async def commit(
        self, scope: Scope, grant: CommandGrant, frame: FrameGrant, report: FrameReport, *, worker: str, take_next: bool
    ) -> FrameGrant | None:
        """Record what a frame came to and, if asked, lease the next in the same transaction."""
        report, refs = reports.commit(grant, frame, report, worker=worker, take_next=take_next)
        await self._references.check(scope, refs)
        if report.rest is not None and frame.rows_ref is not None:
            await self._check_rest(scope, frame, frame.rows_ref, report, report.rest)
        ending = self.drafts.committed(scope, grant, frame, report)
        reach("frame.before_commit")
        if take_next and not (has_failed(frame, report) and grant.loop and grant.loop.frame.get("fail_fast")):
            rest = None
            if report.row_count < frame.row_count:
                first = frame.first_index + report.row_count
                rest = NewRows(first, frame.row_count - report.row_count, report.rest)
            following = await self.next(scope, grant, worker, ending, rest)
        else:
            await self._ledger.transact(Transition((ending[0],), (ending[1],)))
            following = None
        reach("frame.after_commit")
        return following

    async def _check_rest(
        self, scope: Scope, frame: FrameGrant, given: PayloadRef, report: FrameReport, rest: PayloadRef
    ) -> None:
        """Refuse rows that are left if they are not those the frame was given and did not work off."""
        store = self._gathering.payloads
        rows, left = [decode_json(await store.fetch(scope, ref)) for ref in (given, rest)]
        if not isinstance(rows, list) or rows[report.row_count :] != left:
            refuse("report.rest", rest.uri, f"it is not what is left of the rows of frame {frame.frame_id}")

    async def fail(
        self, scope: Scope, frame: FrameGrant, error: dict[str, Any], *, max_attempts: int, worker: str
    ) -> None:
        """Record that an attempt failed, or after the last one that the frame did."""
        error = reports.failure(frame, error, max_attempts, worker)
        said = self.drafts.failed(scope, frame, error, max_attempts)
        await self._ledger.transact(Transition((said,), (held(frame),)))
        self._cursor(frame.stage_id).may_have_free = True
        self._touch()

    async def checkpoint(self, scope: Scope, frame: FrameGrant, cursor: dict[str, Any]) -> None:
        """Record how far a frame got."""
        await self._references.check(scope, reports.checkpoint(frame, cursor))
        await self._ledger.transact(Transition((self.drafts.checkpointed(scope, frame, cursor),), (held(frame),)))

    async def tally(
        self,
        scope: Scope,
        execution_id: int,
        stage_id: int,
        loop_id: int,
        *,
        total: int | None = None,
        with_open: bool = False,
    ) -> Tally:
        """Return what came of a stage's rows, once only one slot of it is open any more.

        Frames that are still open, which a slot lost and nobody has taken yet, are refused: their rows would be
        forgotten, as would those of the `total` that were never handed out. `with_open` counts them as they are, for a
        stage that cannot go on.
        """
        stage = await self._work.stage(scope, execution_id, stage_id)
        if stage is None:
            raise NotFound(f"stage {stage_id} of execution {execution_id} is closed")
        if stage.frames_open and not with_open and not stage.has_failed_fast:
            raise FramesOpen(f"{stage.frames_open} frames of stage {stage_id} wait for another owner")
        if total is not None and stage.next_index < total and not with_open and not stage.has_failed_fast:
            refuse("report.status", "ok", f"{total - stage.next_index} of {total} rows were never handed out")
        gathered = await self._gathering.gather(scope, execution_id, loop_id, one_per_frame=stage.is_one_per_frame)
        problem = await first_problem(self._facts, scope, execution_id, loop_id) if stage.rows_failed else None
        self._cursors.pop(stage_id, None)
        return Tally(
            frames=stage.frames_minted,
            frames_failed=stage.frames_failed,
            rows_done=stage.rows_done,
            rows_failed=stage.rows_failed,
            rows_handed_out=stage.next_index,
            errors=stage.errors,
            problem=problem,
            ctx=await made_whole(self._gathering.payloads, scope, stage.ctx),
            **msgspec.structs.asdict(gathered),
        )

    async def ctx(self, scope: Scope, execution_id: int, stage_id: int) -> dict[str, Any]:
        """Return what committed frames of a stage have set."""
        stage = await self._work.stage(scope, execution_id, stage_id)
        return {} if stage is None else await made_whole(self._gathering.payloads, scope, stage.ctx)

    async def _refresh(self, scope: Scope, execution_id: int, stage_id: int, cursor: _Cursor) -> None:
        stage = await self._work.stage(scope, execution_id, stage_id)
        if stage is None:
            raise Conflict(f"stage {stage_id} of execution {execution_id} is closed")
        cursor.next_index, cursor.frames = stage.next_index, stage.frames_minted

    def _cursor(self, stage_id: int) -> _Cursor:
        cursor = self._cursors.setdefault(stage_id, _Cursor())
        while len(self._cursors) > 10_000:
            self._cursors.popitem(last=False)
        return cursor

    def lost(self, stage_id: int) -> None:
        """Take note that a frame of a stage became free."""
        self._cursor(stage_id).may_have_free = True


def proof_of(frame: HeldFrame) -> Proof:
    """Return what the holder of a frame proves itself by."""
    return Proof((frame.execution_id, frame.frame_id), frame.attempt, frame.lease_token)


def frame_id_of(stage_id: int, index: int) -> int:
    """Return the id of a stage's frame: two workers that mint the same window mint the same frame, and one wins."""
    return int.from_bytes(blake3(f"{stage_id}/{index}".encode()).digest(length=8), "little") >> 2 | 1 << 60
