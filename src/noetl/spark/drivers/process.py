"""One Spark driver process, seen from its worker: started, spoken to over a socket, and closed or killed.

A driver that dies gives every open work a result that may be tried again; nothing waits for it for ever.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from noetl.errors import NoetlError, Unavailable
from noetl.model.dataset import Manifest
from noetl.model.task import PartitionWrite
from noetl.spark.drivers.protocol import (
    PREFIX,
    Answer,
    AnyErrand,
    Asks,
    AskToStop,
    Broken,
    Done,
    FromDriver,
    Interrupt,
    InterruptLeft,
    MakeUnique,
    Open,
    Ready,
    Run,
    Stop,
    ToDriver,
    UseCode,
    Work,
    WorkResult,
    encode,
    from_driver,
)
from noetl.spark.drivers.scratch import claimed, new_scratch
from noetl.spark.session.options import SparkOptions

_log = logging.getLogger(__name__)

LOST: Final = "driver_lost"
"""The kind of error of works whose driver died under them."""
_STOP_SECONDS: Final = 15.0
_INTERRUPT_SECONDS: Final = 20.0
"""An interrupted work that has not ended by then takes its driver with it: its code does not listen."""

_Key = tuple[str, int]

Answering = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""What answers the questions of a program; a NoetlError is told to the program as a refusal."""


class DriverProcess:
    """A driver that is starting, ready or dead."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._results: dict[_Key, asyncio.Future[WorkResult]] = {}
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting for it when it fails, and that is not worth a warning.
        self._ready.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._dead = False
        self._closing = False
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self._answering: dict[str, Answering] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._life = asyncio.create_task(self._live(), name="spark driver")
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def dead(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self._dead

    @property
    def busy(self) -> bool:
        """Whether works are open."""
        return bool(self._results)

    @property
    def pid(self) -> int | None:
        """The process, once it is started."""
        return self._process.pid if self._process else None

    async def ready(self) -> Ready:
        """Wait until Spark is up; raises Unavailable when it cannot be had."""
        return await asyncio.shield(self._ready)

    def use_code(self, directory: Path, zipped: Path) -> None:
        """Give the driver the one bundle it serves."""
        self._send(UseCode(str(directory), str(zipped)))

    async def run(self, works: Sequence[Work], organization: str = "") -> AsyncGenerator[WorkResult]:
        """Run works of one job and give each result as it comes; works left when the caller stops are interrupted."""
        await self.ready()
        open_works = {self._expect(work): work.tag for work in works}
        self._send(Run(tuple(works), organization))
        try:
            while open_works:
                ended, _ = await asyncio.wait(open_works, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    open_works.pop(one)
                    yield one.result()
        finally:
            for tag in open_works.values():
                self.interrupt(tag)

    async def make_unique(
        self, work: Work, write: PartitionWrite, landed: Manifest, organization: str = ""
    ) -> WorkResult:
        """Drop from files just written the rows whose key landed meanwhile."""
        await self.ready()
        result = self._expect(work)
        self._send(MakeUnique(work=work, write=write, landed=landed, organization=organization))
        return await result

    async def do(self, errand: AnyErrand, answer: Answering | None = None) -> WorkResult:
        """Do one errand, answering what it asks; it is interrupted when the caller stops."""
        await self.ready()
        result = self._expect_of(errand.id, errand.attempt)
        if answer is not None:
            self._answering[errand.tag] = answer
        self._send(errand)
        try:
            return await result
        except asyncio.CancelledError:
            self.interrupt(errand.tag)
            raise
        finally:
            self._answering.pop(errand.tag, None)

    def interrupt(self, tag: str) -> None:
        """Stop a work; a driver whose work does not stop in time is killed. One that has ended needs no more stopping."""
        if not any(tag == f"noetl-{name}-{attempt}" for name, attempt in self._results):
            return
        self._send(Interrupt(tag))
        if tag not in self._deadlines and not self._dead:
            self._deadlines[tag] = asyncio.get_running_loop().call_later(_INTERRUPT_SECONDS, self.kill)

    def ask_to_stop(self, tag: str) -> None:
        """Let a work know that it should end soon by itself."""
        self._send(AskToStop(tag))

    def interrupt_left(self, application_id: str, tag: str) -> None:
        """Stop what a driver that is gone left running on a Spark Connect server."""
        self._send(InterruptLeft(application_id, tag))

    async def close(self) -> None:
        """End the driver in good order, by force when it takes too long."""
        self._closing = True
        if not self._ready.done():
            self.kill()
        self._send(Stop())
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.shield(self._life)
        except TimeoutError:
            self.kill()
        await self._life

    def kill(self) -> None:
        """End the driver and its JVM at once; open works get a result that may be tried again."""
        if self._writer is not None:
            # The end of the socket makes the driver kill its JVM before itself.
            self._writer.transport.abort()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _expect(self, work: Work) -> asyncio.Future[WorkResult]:
        return self._expect_of(work.grant.lease.task_id, work.grant.lease.attempt)

    def _expect_of(self, name: str, attempt: int) -> asyncio.Future[WorkResult]:
        result: asyncio.Future[WorkResult] = asyncio.get_running_loop().create_future()
        self._results[name, attempt] = result
        if self._dead:
            self._give_up("the Spark driver has ended")
        return result

    def _send(self, message: ToDriver) -> None:
        if self._writer is not None and not self._dead:
            self._writer.write(encode(message))

    async def _live(self) -> None:
        """Start the process, take its messages until it ends, and leave nothing of it."""
        scratch = await asyncio.to_thread(new_scratch, Path(self._options.home))
        why = "the Spark driver process ended"
        try:
            await self._start(scratch)
            if self._closing:
                self.kill()
            reader = self._reader
            while True:
                head = await reader.readexactly(PREFIX.size)
                self._take(from_driver(await reader.readexactly(PREFIX.unpack(head)[0])))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except _BrokenDriver as error:
            why = str(error)
        finally:
            self._dead = True
            await self._ended(scratch, why)

    async def _start(self, scratch: Path) -> None:
        ours, theirs = socket.socketpair()
        try:
            with (scratch / "driver.log").open("ab") as output, claimed(scratch) as claim:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "noetl.spark.drivers.main",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(), claim),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        self._send(Open(self._options, str(scratch)))

    def _take(self, message: FromDriver) -> None:
        if isinstance(message, Ready):
            self._ready.set_result(message)
        elif isinstance(message, Done):
            result = message.result
            self._forget_deadline(f"noetl-{result.task_id}-{result.attempt}")
            waiting = self._results.pop((result.task_id, result.attempt), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(result)
        elif isinstance(message, Asks):
            answering = asyncio.create_task(self._answer(message), name=f"answer {message.job_tag}")
            self._answers.add(answering)
            answering.add_done_callback(self._answers.discard)
        elif isinstance(message, Broken):
            raise _BrokenDriver(message.message)

    async def _answer(self, asked: Asks) -> None:
        answer = self._answering.get(asked.job_tag)
        if answer is None:
            self._send(Answer(job_tag=asked.job_tag, number=asked.number, refusal="nobody answers this program"))
            return
        try:
            said = Answer(job_tag=asked.job_tag, number=asked.number, answer=await answer(asked.question))
        except NoetlError as problem:
            said = Answer(job_tag=asked.job_tag, number=asked.number, refusal=f"{problem.code}: {problem.message}")
        except Exception as problem:  # the program must not wait for ever, whatever went wrong here
            _log.exception("a question of %s could not be answered", asked.job_tag)
            said = Answer(job_tag=asked.job_tag, number=asked.number, refusal=f"{type(problem).__name__}: {problem}")
        self._send(said)

    async def _ended(self, scratch: Path, why: str) -> None:
        for tag in list(self._deadlines):
            self._forget_deadline(tag)
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self.kill()
                await self._process.wait()
        said = await asyncio.to_thread(_tail, scratch)
        if not self._ready.done():
            ending = f"; its log ends: {said[-1500:]}" if said else ""
            self._ready.set_exception(
                Unavailable(f"Spark did not start: {why}{ending}", hint="noetl doctor tells what is missing")
            )
        self._give_up(why, said)
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _give_up(self, why: str, said: str = "") -> None:
        results, self._results = self._results, {}
        for (task_id, attempt), waiting in results.items():
            if not waiting.done():
                lost = WorkResult(
                    task_id=task_id, attempt=attempt, status="error", error=why, error_kind=LOST, log=said
                )
                waiting.set_result(lost)

    def _forget_deadline(self, tag: str) -> None:
        if (timer := self._deadlines.pop(tag, None)) is not None:
            timer.cancel()


class Driver:
    """A driver as one request holds it, for one organization."""

    def __init__(self, process: DriverProcess, application_id: str, organization: str) -> None:
        self._process = process
        self._organization = organization
        self.application_id = application_id

    @property
    def pid(self) -> int | None:
        """The driver's process."""
        return self._process.pid

    def run(self, works: Sequence[Work]) -> AsyncGenerator[WorkResult]:
        """Run works of one job; each gets exactly one result, as soon as it has ended."""
        return self._process.run(works, self._organization)

    async def do(self, errand: AnyErrand, answer: Answering | None = None) -> WorkResult:
        """Do one errand, answering what it asks, and return its result."""
        return await self._process.do(errand, answer)

    async def interrupt(self, job_tag: str) -> None:
        """Stop what runs under a tag, at once; its result then says so."""
        self._process.interrupt(job_tag)

    async def ask_to_stop(self, job_tag: str) -> None:
        """Let what runs under a tag know that it should end soon by itself."""
        self._process.ask_to_stop(job_tag)

    async def interrupt_left(self, application_id: str, job_tag: str) -> None:
        """Stop what a driver that is gone left running on a Spark Connect server."""
        self._process.interrupt_left(application_id, job_tag)

    async def make_unique(self, work: Work, write: PartitionWrite, landed: Manifest) -> WorkResult:
        """Drop rows whose key landed meanwhile by another commit."""
        return await self._process.make_unique(work, write, landed, self._organization)


class _BrokenDriver(Exception):
    """The driver said that it cannot go on."""


def _tail(scratch: Path) -> str:
    """Return the last words of a driver and its JVM."""
    files = (scratch / "driver.log", scratch / "spark.log")
    texts = (path.read_text(encoding="utf-8", errors="replace")[-20_000:] for path in files if path.exists())
    return "\n".join(text.strip() for text in texts if text.strip())
