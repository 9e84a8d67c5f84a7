"""The ledger as a process reaches it: every write is seen before and after, and judged by rules that know nothing of fences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.transition import Transition
from noetl.model.event import Appended, Draft
from noetl.model.stream import Stream
from noetl.testing.simulation.checks.watch import Watch
from noetl.testing.simulation.world.process import Process


class WatchedLedger:
    """See `Ledger` for the promises. Reading takes a moment, writing two: one before, one after it stands."""

    def __init__(
        self,
        process: Process,
        ledger: MemoryLedger,
        watch: Watch,
        late: Callable[[Transition], float] = lambda transition: 0.0,
    ) -> None:
        self._process = process
        self._late = late
        self._ledger = ledger
        self._watch = watch

    async def append(self, stream: Stream, drafts: Sequence[Draft], expected_version: int | None = None) -> Appended:
        """Record drafts."""
        await self._process.step()
        answer = await self._ledger.append(stream, drafts, expected_version)
        self._watch.recorded(self._process.name, None)
        await self._process.step()
        return answer

    async def transact(self, transition: Transition) -> tuple[Appended, ...]:
        """Record a change of work."""
        if seconds := self._late(transition):
            await asyncio.sleep(seconds)
        await self._process.step()
        before = self._watch.before(transition)
        answers = await self._ledger.transact(transition)
        self._watch.recorded(self._process.name, before)
        await self._process.step()
        return answers

    async def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Any]:
        """Give the events of a stream."""
        await self._process.step()
        async for event in self._ledger.read(stream, from_version):
            yield event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)
