"""The DuckDB engine: a few processes that answer one query each at a time. One that misbehaves is replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa

from noetl.services.query.duck.process import DuckProcess
from noetl.services.query.duck.protocol import Ask, Relation
from noetl.services.query.errors import QueryTimedOut
from noetl.services.query.options import DuckOptions


class Duck:
    """Hands queries to processes; `close` ends them all."""

    def __init__(self, options: DuckOptions) -> None:
        self._options = options
        self._room = asyncio.Semaphore(options.processes)
        self._idle: list[DuckProcess] = []
        self._all: set[DuckProcess] = set()

    @property
    def processes(self) -> tuple[DuckProcess, ...]:
        """Those that are there."""
        return tuple(self._all)

    async def warm(self) -> None:
        """Have a process ready before the first query asks for one."""
        if not self._all:
            process = await self._started()
            await process.ready()
            self._idle.append(process)

    async def answer(self, relations: Sequence[Relation], sql: str, seconds: float) -> pa.Table:
        """Run a query over these relations and return its rows; the wait for a process counts as its time."""
        asked = Ask(relations=tuple(relations), sql=sql, most_bytes=self._options.most_bytes)
        try:
            stream = await self._asked(asked, seconds)
        except TimeoutError:
            raise QueryTimedOut(
                f"the query took longer than {seconds:g} seconds and was stopped",
                hint="read fewer rows, or allow more time",
            ) from None
        return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()

    async def _asked(self, asked: Ask, seconds: float) -> bytes:
        began = time.monotonic()
        async with asyncio.timeout(seconds):
            await self._room.acquire()
        waited = time.monotonic() - began
        try:
            async with self._process(asked.relations) as process:
                return await process.ask(asked, seconds - waited)
        finally:
            self._room.release()

    async def close(self) -> None:
        """End all processes."""
        processes, self._all, self._idle = self._all, set(), []
        await asyncio.gather(*(process.close() for process in processes))

    @asynccontextmanager
    async def _process(self, relations: tuple[Relation, ...]) -> AsyncIterator[DuckProcess]:
        process = self._chosen(relations) or await self._started()
        try:
            yield process
        finally:
            if process.dead:
                self._all.discard(process)
                await asyncio.shield(process.close())
            elif process in self._all:
                self._idle.append(process)

    def _chosen(self, relations: tuple[Relation, ...]) -> DuckProcess | None:
        """Take an idle process, one that has read these relations last if there is one."""
        if not self._idle:
            return None
        place = next((place for place, one in enumerate(self._idle) if one.reads == relations), -1)
        return self._idle.pop(place)

    async def _started(self) -> DuckProcess:
        process = DuckProcess(self._options)
        self._all.add(process)
        try:
            await process.start()
        except BaseException:
            self._all.discard(process)
            await process.close()
            raise
        return process
