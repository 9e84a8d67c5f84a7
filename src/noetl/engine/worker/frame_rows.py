"""Works off the rows of one frame in this process, in order or several at a time, and gathers what they came to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameSoFar
from noetl.engine.plan.state import net, written
from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call
from noetl.engine.worker.compiled_step import CompiledStep, CompiledTask
from noetl.engine.worker.sequence import run_sequence
from noetl.engine.worker.services import CallMaker, Services
from noetl.faults import reach
from noetl.language.playbook.model import Step
from noetl.language.templates.scopes import Names
from noetl.model.payload_ref import PayloadRef

NEARLY_SECONDS = 0.02
"""A frame whose rows are likely to be worked off within this time is nearly done."""

RunChild = Callable[[CompiledTask, Call], Awaitable[Outcome]]


@dataclass
class RowEnd:
    """What one row came to."""

    index: int
    status: str
    data: Any = None
    error: Problem | None = None
    swallowed: int = 0
    ctx_writes: dict[str, Any] = field(default_factory=dict)
    artifacts: tuple[PayloadRef, ...] = ()


@dataclass
class FrameEnd:
    """What a frame's rows came to, in their order."""

    rows: list[RowEnd] = field(default_factory=list)
    swallowed: int = 0
    ctx_writes: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, PayloadRef] = field(default_factory=dict)
    """What the rows put into the payload store to stay there, by digest."""
    error: Problem | None = None
    """Why the whole frame failed, where its rows are worked off together."""
    is_one: bool = False
    """Whether its rows were worked off together and came to one result, which the first of them has."""

    @property
    def results(self) -> list[RowEnd]:
        """The ends that have results: those of all rows, or the first one's where that is the result of all."""
        return self.rows[:1] if self.is_one else self.rows

    def add(self, row: RowEnd) -> None:
        """Take the next row."""
        self.rows.append(row)
        self.swallowed += row.swallowed
        if row.ctx_writes:
            self.ctx_writes = net([*self.ctx_writes.items(), *row.ctx_writes.items()])
        if row.artifacts:
            self.artifacts |= {ref.sha256: ref for ref in row.artifacts}


Save = Callable[[FrameEnd], Awaitable[None]]
"""Writes down how far a frame got."""


class FrameRun:
    """One frame being worked off."""

    def __init__(
        self,
        services: Services,
        grant: CommandGrant,
        step: Step,
        compiled: CompiledStep,
        names: Names,
        frame: FrameGrant,
        children: RunChild,
        save: Save,
        nearly_done: Callable[[], None] | None = None,
    ) -> None:
        self._services = services
        self._grant = grant
        self._step = step
        self._compiled = compiled
        # Its own: what rows set counts for others only once the frame is committed.
        self._names = names.for_run()
        self._frame = frame
        self._calls = CallMaker(services, grant)
        self._save = save
        self._children = children
        assert step.loop is not None
        assert grant.loop is not None
        self._iterator = step.loop.iterator
        self._policy = grant.loop.frame
        self._total = grant.loop.total
        self._deferred: list[tuple[RowEnd, Call]] = []
        self._nearly_done = nearly_done
        self._began = self._until = self._save_at = 0.0
        self._rows_before = 0
        self._set: dict[str, Any] = {}
        self._bytes = 0
        self.end = FrameEnd()

    async def work(self, rows: list[Any], before: FrameEnd) -> FrameEnd:
        """Work off rows after those that were worked off `before`; the end has both, and stops short if it is full.

        What the rows left for the frame's end is not done yet: see `finish`.
        """
        self.end, self._set = before, before.ctx_writes
        if before.ctx_writes:
            self._names.put_ctx(written(self._names["ctx"], before.ctx_writes), before.ctx_writes)
        if self._policy["process"] == "frame":
            await self._together(rows)
            return self.end
        started = self._rows_before = len(before.rows)
        self._began = self._services.monotonic()
        self._until = self._began + self._policy["max_seconds"]
        self._save_at = self._next_save()
        lanes = min(self._policy["row_concurrency"], len(rows) - started)
        if lanes <= 1:
            for number in range(started, len(rows)):
                self.end.add(await self._row(rows[number], number))
                if not await self._goes_on(number + 1 - started, len(rows) - number - 1):
                    break
        else:
            await self._in_lanes(rows, started, lanes)
        return self.end

    def so_far(self) -> FrameSoFar:
        """Say how many rows are worked off, and how quickly; none of them counts before the frame is committed."""
        rows = self.end.rows
        failed = sum(row.status == "error" for row in rows)
        seconds = self._services.monotonic() - self._began
        return FrameSoFar(
            stage_id=self._frame.stage_id,
            frame_id=self._frame.frame_id,
            attempt=self._frame.attempt,
            rows_done=len(rows) - failed,
            rows_failed=failed,
            rows_per_second=round((len(rows) - self._rows_before) / seconds, 1) if self._began and seconds else 0.0,
        )

    async def _goes_on(self, done: int, left: int) -> bool:
        """Tell whether the frame has time and room for another row; does what is due between two rows."""
        now = self._services.monotonic()
        if self._bytes >= self._policy["max_bytes"] or now >= self._until:
            return False
        if self._nearly_done is not None and (now - self._began) / done * left <= NEARLY_SECONDS:
            self._nearly_done()
            self._nearly_done = None
        if now >= self._save_at:
            self._save_at = math.inf
            await self._save(self.end)
            self._save_at = self._next_save()
        return True

    def _next_save(self) -> float:
        # What is left to the end of a frame is not done before, so there is nothing to go on from.
        if self._policy["retry_mode"] != "resume" or self._policy["commit"] == "frame":
            return math.inf
        return self._services.monotonic() + float(self._policy["heartbeat_seconds"])

    async def _in_lanes(self, rows: list[Any], started: int, lanes: int) -> None:
        ends: dict[int, RowEnd] = {}
        numbers = iter(range(started, len(rows)))

        async def lane() -> None:
            for number in numbers:
                ends[number] = await self._row(rows[number], number)
                while len(self.end.rows) in ends:
                    self.end.add(ends.pop(len(self.end.rows)))
                if not await self._goes_on(number + 1 - started, len(rows) - number - 1):
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(lanes):
                    group.create_task(lane())
        except ExceptionGroup as several:
            # The caller tells a lost lease from other troubles, as it does where rows run one after the other.
            raise several.exceptions[0] from None

    async def _row(self, row: Any, number: int) -> RowEnd:
        index = self._frame.first_index + number
        names = self._names.for_row(
            self._iterator,
            row,
            index,
            length=self._total,
            _frame_index=self._frame.frame_index,
            _frame_row_index=number,
            _worker_slot_id=self._grant.command_id,
        )
        kept: list[Call] = []
        result = await run_sequence(
            self._compiled,
            names,
            tools=self._services.tools,
            make_call=self._calls.at(index),
            sleep=self._services.sleep,
            monotonic=self._services.monotonic,
            beside=self._services.beside,
            defer=(lambda _task, call: kept.append(call)) if self._policy["commit"] == "frame" else None,
            children=self._children,
        )
        reach("rows.after_work")
        self._bytes += _size(result.data)
        end = RowEnd(
            index, result.status, result.data, result.error, result.swallowed, result.ctx_writes, result.artifacts
        )
        if end.ctx_writes:
            self._share(end)
        if kept:
            self._deferred.append((end, kept[-1]))
        return end

    def _share(self, end: RowEnd) -> None:
        """Let later rows of this frame see what a row set, unless its frame could not record it."""
        together = net([*self._set.items(), *end.ctx_writes.items()])
        most = self._services.frame_ctx_bytes
        if _size(together) > most:
            where, end.ctx_writes = f"{self._compiled.where}, field set", {}
            message = (
                f"{where}: the rows of a frame set more than {most} bytes in ctx"
                " (runtime.scheduler.max_frame_ctx_bytes); let rows give it as their result"
            )
            end.status, end.error = "error", Problem(kind="transform", message=message, code="set_too_large")
            return
        self._set = together
        self._names.put_ctx(written(self._names["ctx"], net(end.ctx_writes.items())), end.ctx_writes)

    async def finish(self) -> None:
        """Run what the rows left for the end in one transaction; a statement that fails fails its row alone."""
        if not self._deferred:
            return
        from noetl.engine.tools.postgres.batch import run_batch

        ends, self._deferred = sorted(self._deferred, key=lambda pair: pair[0].index), []
        outcomes = await run_batch([call for _, call in ends], self._services.resources)
        for (end, _), outcome in zip(ends, outcomes, strict=True):
            end.status, end.data, end.error = outcome.status, outcome.data, outcome.error

    async def _together(self, rows: list[Any]) -> None:
        frame = {
            "index": self._frame.frame_index,
            "base_index": self._frame.first_index,
            "worker_slot_id": self._grant.command_id,
            "policy": self._policy,
        }
        names = self._names.for_frame(self._iterator, rows, frame)
        result = await run_sequence(
            self._compiled,
            names,
            tools=self._services.tools,
            make_call=self._calls.at(f"frame-{self._frame.first_index}"),
            sleep=self._services.sleep,
            monotonic=self._services.monotonic,
            beside=self._services.beside,
            children=self._children,
        )
        first = self._frame.first_index
        end = RowEnd(
            first, result.status, result.data, result.error, result.swallowed, result.ctx_writes, result.artifacts
        )
        if end.ctx_writes:
            self._share(end)
        self.end.error = end.error if end.status == "error" else None
        self.end.is_one = True
        self.end.add(end)
        for number in range(1, len(rows)):
            self.end.add(RowEnd(first + number, end.status))


def _size(data: Any) -> int:
    """Return about how many bytes a result takes."""
    if data is None or isinstance(data, bool | int | float):
        return 8
    if isinstance(data, str):
        return len(data)
    try:
        return len(orjson.dumps(data))
    except TypeError:
        return len(str(data))  # what JSON cannot carry is kept as text
