"""Works off the rows of one frame in this process, in order or several at a time, and gathers what they came to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from noetl.dispatch.grants import CommandGrant, FrameGrant
from noetl.execute.calls import call_maker
from noetl.execute.compiled import CompiledStep, CompiledTask
from noetl.execute.outcome import Outcome, Problem
from noetl.execute.sequence import SequenceResult, run_sequence
from noetl.execute.services import Services
from noetl.execute.tools.port import Call
from noetl.faults import reach
from noetl.plan.state import net, written
from noetl.playbook.model import Step
from noetl.playbook.scopes import Names

RunChild = Callable[[CompiledTask, Call], Awaitable[Outcome]]


@dataclass
class RowEnd:
    """What one row came to."""

    index: int
    status: str
    data: Any = None
    error: Problem | None = None


@dataclass
class FrameEnd:
    """What a frame's rows came to, in their order."""

    rows: list[RowEnd] = field(default_factory=list)
    swallowed: int = 0
    ctx_writes: dict[str, Any] = field(default_factory=dict)
    error: Problem | None = None
    """Why the whole frame failed, where its rows are worked off together."""


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
    ) -> None:
        self._services = services
        self._grant = grant
        self._step = step
        self._compiled = compiled
        self._names = names
        self._frame = frame
        self._children = children
        assert step.loop is not None
        assert grant.loop is not None
        self._iterator = step.loop.iterator
        self._policy = grant.loop.frame
        self._total = grant.loop.total
        self._deferred: list[tuple[RowEnd, Call]] = []
        self._until = 0.0
        self._bytes = 0
        self.end = FrameEnd()

    async def work(self, rows: list[Any], started: int = 0) -> FrameEnd:
        """Work off rows from `started` on, stopping early when the frame is full; `end` tells how far it got."""
        if self._policy["process"] == "frame":
            await self._together(rows)
            return self.end
        self._until = self._services.monotonic() + self._policy["max_seconds"]
        lanes = min(self._policy["row_concurrency"], len(rows) - started)
        if lanes <= 1:
            for number in range(started, len(rows)):
                self.end.rows.append(await self._row(rows[number], number))
                if self._is_full():
                    break
        else:
            await self._in_lanes(rows, started, lanes)
        await self._commit_deferred()
        return self.end

    def _is_full(self) -> bool:
        """Tell whether the frame has used up its time or its bytes."""
        return self._bytes >= self._policy["max_bytes"] or self._services.monotonic() >= self._until

    async def _in_lanes(self, rows: list[Any], started: int, lanes: int) -> None:
        ends: dict[int, RowEnd] = {}
        numbers = iter(range(started, len(rows)))

        async def lane() -> None:
            for number in numbers:
                ends[number] = await self._row(rows[number], number)
                if self._is_full():
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(lane())
        self.end.rows += [ends[number] for number in sorted(ends)]

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
            make_call=call_maker(self._services, self._grant, str(index)),
            sleep=self._services.sleep,
            monotonic=self._services.monotonic,
            defer=(lambda _task, call: kept.append(call)) if self._policy["commit"] == "frame" else None,
            children=self._children,
        )
        reach("rows.after_work")
        end = RowEnd(index, result.status, result.data, result.error)
        self._bytes += _size(result.data)
        if kept:
            self._deferred.append((end, kept[-1]))
        self._note(result)
        return end

    def _note(self, result: SequenceResult) -> None:
        self.end.swallowed += result.swallowed
        if result.ctx_writes:
            self.end.ctx_writes = net([*self.end.ctx_writes.items(), *result.ctx_writes.items()])
            # Later rows of this frame see what earlier ones set.
            self._names["ctx"] = written(self._names["ctx"], net(result.ctx_writes.items()))

    async def _commit_deferred(self) -> None:
        """Run what the rows left for the end in one transaction; a statement that fails fails its row alone."""
        if not self._deferred:
            return
        from noetl.execute.tools.postgres_batch import run_batch

        ends = sorted(self._deferred, key=lambda pair: pair[0].index)
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
            make_call=call_maker(self._services, self._grant, f"frame-{self._frame.first_index}"),
            sleep=self._services.sleep,
            monotonic=self._services.monotonic,
            children=self._children,
        )
        self._note(result)
        self.end.error = result.error if result.status == "error" else None
        first = self._frame.first_index
        self.end.rows = [RowEnd(first, result.status, result.data, result.error)]
        self.end.rows += [RowEnd(first + number, result.status) for number in range(1, len(rows))]


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
