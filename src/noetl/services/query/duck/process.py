"""One DuckDB process, seen from its server: started, asked one query at a time, interrupted, and killed if it does not listen."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from noetl.errors import Unavailable
from noetl.services.query.duck.protocol import (
    PREFIX,
    Ask,
    Failed,
    FromDuck,
    Interrupt,
    Open,
    Relation,
    Rows,
    ToDuck,
    encode,
    from_duck,
)
from noetl.services.query.errors import AnswerTooLarge, QueryFailed, QueryRefused
from noetl.services.query.options import DuckOptions
from noetl.spark.drivers.scratch import claimed, new_scratch

_START_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 1.0
"""How long an interrupted query has to end by itself before its process is killed."""
_KEPT: Final = ("PATH", "HOME", "LANG", "TMPDIR", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_OF_STORES: Final = ("AWS_", "GOOGLE_", "AZURE_")


class DuckProcess:
    """A process that answers queries; once it is dead, another has to be started."""

    def __init__(self, options: DuckOptions) -> None:
        self._options = options
        self._scratch = new_scratch(Path(options.home))
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_ready = False
        self._halfway = False
        self.dead = False
        self.reads: tuple[Relation, ...] | None = None
        """What it read last."""
        self.asked = asyncio.Event()
        """Set once the process has been sent a query."""

    @property
    def pid(self) -> int | None:
        """The process, once it is started."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process; it gets itself ready while others go on."""
        ours, theirs = socket.socketpair()
        silent = asyncio.subprocess.DEVNULL
        try:
            with claimed(self._scratch) as claim:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "noetl.services.query.duck.worker", str(theirs.fileno()),
                    pass_fds=(theirs.fileno(), claim), stdin=silent, stdout=silent, stderr=silent,
                    start_new_session=True, env=_environment(self._options), cwd=self._scratch,
                )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        await self._send(
            Open(
                lake_root=self._options.lake_root,
                lake_options=self._options.lake_options,
                scratch=str(self._scratch / "spill"),
                memory=self._options.memory,
                threads=self._options.threads,
                spill=self._options.spill,
            )
        )

    async def ready(self) -> None:
        """Wait until the process has started."""
        if not self._is_ready:
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await self._receive()
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                self.kill()
                raise Unavailable("a DuckDB process did not start", hint="look at the machine's memory") from None
            self._is_ready = True

    async def ask(self, asked: Ask, seconds: float) -> bytes:
        """Return the answer as an Arrow stream, or raise TimeoutError; whatever happens, the query does not run on."""
        await self.ready()
        try:
            await self._send(asked)
            self.asked.set()
            self.reads = asked.relations
            try:
                async with asyncio.timeout(seconds):
                    said = await self._receive()
            except TimeoutError:
                await self._interrupt()
                raise
        except (asyncio.IncompleteReadError, ConnectionError):
            self.kill()
            raise QueryFailed(
                f"the process of the query ended; perhaps its {self._options.memory} of memory did not suffice",
                hint="read fewer columns or rows, or aggregate earlier",
            ) from None
        except asyncio.CancelledError:
            self.kill()
            raise
        if isinstance(said, Failed):
            raise _problem(said, self._options)
        assert isinstance(said, Rows)
        return said.stream

    def kill(self) -> None:
        """End the process at once."""
        self.dead = True
        if self._writer is not None:
            self._writer.transport.abort()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def ended(self) -> None:
        """Wait until the process is gone."""
        if self._process is not None:
            await self._process.wait()

    async def close(self) -> None:
        """End the process and leave nothing of it."""
        self.kill()
        await self.ended()
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)

    async def _interrupt(self) -> None:
        """Stop the query that runs; a process that does not listen, or is in the middle of its answer, is killed."""
        if self._halfway:
            self.kill()
            return
        try:
            await self._send(Interrupt())
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._receive()
        except TimeoutError:
            self.kill()

    async def _send(self, message: ToDuck) -> None:
        assert self._writer is not None
        self._writer.write(encode(message))
        await self._writer.drain()

    async def _receive(self) -> FromDuck:
        assert self._reader is not None
        head = await self._reader.readexactly(PREFIX.size)
        self._halfway = True
        body = await self._reader.readexactly(PREFIX.unpack(head)[0])
        self._halfway = False
        return from_duck(body)


def _problem(said: Failed, options: DuckOptions) -> Exception:
    match said.trouble:
        case "size":
            return AnswerTooLarge(
                f"the answer has more than {options.most_bytes:,} bytes", hint="ask for fewer rows or columns"
            )
        case "proof":
            return QueryRefused("unproven", f"DuckDB reads the query differently: {said.message}")
        case "memory":
            return QueryFailed(
                f"the query needs more than its {options.memory} of memory", hint="read fewer columns or rows"
            )
        case "files":
            return Unavailable("files of a dataset cannot be read", hint="look at the settings of the lake")
        case "interrupted":
            return QueryFailed("the query was stopped")
        case _:
            return QueryFailed(said.message)


def _environment(options: DuckOptions) -> dict[str, str]:
    """Return what the process needs to start; an object store may be reached by what the environment says of it."""
    remote = "://" in options.lake_root
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith("LC_") or (remote and name.startswith(_OF_STORES))
    }
