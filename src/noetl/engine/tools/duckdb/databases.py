"""Lends DuckDB connections and runs work on them in threads: files are shared by the worker's calls, memory is not.

A call that names no database gets the one of its execution: a file in the worker's scratch place, gone with the execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from noetl.engine.confinement.policy import policy, refuse_hidden
from noetl.engine.confinement.threads import confine_thread
from noetl.engine.tools.port import Call, Resources
from noetl.engine.tools.resources import scratch_of

MEMORY = ":memory:"
_OF_EXECUTIONS = "execution.duckdb"
_THREADS = 4
_INTERRUPT_EVERY = 0.05

Made = TypeVar("Made")


@dataclass
class _File:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    connection: duckdb.DuckDBPyConnection | None = None


class Databases:
    """The worker's open databases. A file is closed as soon as no call waits for it, so that others can open it."""

    def __init__(self, settings: Mapping[str, str], *, shown: Path | None = None) -> None:
        """Take DuckDB's settings, and the directory of executions' own databases, which may be below what is hidden."""
        # Extensions of strangers would be code in the worker's own process.
        given = {"allow_community_extensions": "false", **settings}
        self._settings: dict[str, str | bool | int | float | list[str]] = dict(given)
        self._files: dict[str, _File] = {}
        # DuckDB's own threads are started by these, and see what they see.
        confined = partial(confine_thread, policy(), [] if shown is None else [shown])
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="noetl-duckdb", initializer=confined)

    @asynccontextmanager
    async def connection(self, database: str) -> AsyncIterator[duckdb.DuckDBPyConnection]:
        """Lend a connection to a file, to one caller at a time, or to a fresh database in memory."""
        if database == MEMORY:
            connection = await self._open(MEMORY)
            try:
                yield connection
            finally:
                # In a thread that is confined, as all that SQL can bring about.
                await asyncio.shield(asyncio.wrap_future(self._threads.submit(connection.close)))
            return
        path = _absolute(database)
        file = self._files.setdefault(path, _File())
        file.users += 1
        try:
            async with file.lock:
                if file.connection is None:
                    file.connection = await self._open(path)
                # A cursor is a session of its own: what a call sets ends with it.
                cursor = file.connection.cursor()
                try:
                    yield cursor
                finally:
                    cursor.close()
        finally:
            file.users -= 1
            if file.users == 0:
                await self._close(path, file)

    async def _close(self, path: str, file: _File) -> None:
        async with file.lock:
            # Somebody may have come while the lock was waited for.
            if file.users == 0 and file.connection is not None:
                connection, file.connection = file.connection, None
                # Closing writes what is not yet in the file.
                await asyncio.wrap_future(self._threads.submit(connection.close))
        if file.users == 0:
            self._files.pop(path, None)

    async def _open(self, path: str) -> duckdb.DuckDBPyConnection:
        opening = asyncio.wrap_future(self._threads.submit(duckdb.connect, path, config=self._settings))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening).close()
            raise

    async def run(self, connection: duckdb.DuckDBPyConnection, work: Callable[[], Made]) -> Made:
        """Run work on a connection in a thread; when cancelled, interrupt it and wait until it has stopped."""
        job = self._threads.submit(work)
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            # An interrupt that comes between two queries is lost, so it is said again until it is heard.
            while not job.cancel() and not job.done():
                connection.interrupt()
                await asyncio.wait([done], timeout=_INTERRUPT_EVERY)
            if not done.cancelled():
                done.exception()
            raise

    async def aclose(self) -> None:
        """Let the threads end."""
        await asyncio.to_thread(self._threads.shutdown)


def _absolute(database: str) -> str:
    return str(Path(database).absolute())


@asynccontextmanager
async def database_named(call: Call, name: Any) -> AsyncIterator[str]:
    """Lend the path of the database a call names, or that of its execution's own."""
    if name:
        if name != MEMORY:
            refuse_hidden(str(name))
        yield str(name)
        return
    scratch = await scratch_of(call.resources)
    async with scratch.lent(call.owner, call.execution_id) as directory:
        yield str(directory / _OF_EXECUTIONS)


async def databases_of(resources: Resources, settings: Mapping[str, str]) -> Databases:
    """Return the worker's databases under these settings."""

    scratch = await scratch_of(resources)

    async def make() -> Databases:
        return Databases(settings, shown=scratch.root)

    # What is hidden later is hidden from the threads that are made then.
    found: Any = await resources.get(("duckdb", *sorted(settings.items()), *policy().hidden), make)
    databases: Databases = found
    return databases
