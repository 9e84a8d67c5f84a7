"""Points at which jobs inside Spark and their test wait for one another, and results gathered from several runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl.spark.drivers.protocol import WorkResult


@asynccontextmanager
async def meeting(count: int) -> AsyncIterator[int]:
    """Give a port where each caller waits until that many have called."""
    present: list[asyncio.StreamWriter] = []

    async def arrive(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        present.append(writer)
        if len(present) == count:
            for one in present:
                one.write(b"!")
                one.close()

    async with await asyncio.start_server(arrive, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


class Bell:
    """A port that a job calls to say that it is under way."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.port = 0

    @property
    def ring(self) -> str:
        """The Python text that rings it."""
        return f"__import__('socket').create_connection(('127.0.0.1', {self.port})).close()"


@asynccontextmanager
async def bell() -> AsyncIterator[Bell]:
    """Give a bell for one job."""
    one = Bell()

    async def heard(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one.rung.set()
        writer.close()

    async with await asyncio.start_server(heard, "127.0.0.1", 0) as server:
        one.port = server.sockets[0].getsockname()[1]
        yield one


async def gathered(*runs: AsyncIterator[WorkResult]) -> list[WorkResult]:
    """Return the one result of each run, all run at once."""

    async def only(run: AsyncIterator[WorkResult]) -> WorkResult:
        (result,) = [result async for result in run]
        return result

    return list(await asyncio.gather(*map(only, runs)))
