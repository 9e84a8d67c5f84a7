"""Processes of tools: what they print is kept up to a bound, what they know of the worker is little, and their end is final."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from noetl.engine.confinement.policy import enough_memory, policy
from noetl.engine.confinement.process import Confined, await_end

MAX_OUTPUT = 1024 * 1024
"""How much of each of standard output and error is kept of a program."""

GRACE_SECONDS = 2.0
_MARGIN_SECONDS = 0.1
_SPOKEN_OF = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE"})


class Printed(NamedTuple):
    """What a process wrote to one of its streams, and whether more than was kept."""

    text: str
    truncated: bool


def clean_environment() -> dict[str, str]:
    """Return what a process may know of the worker's environment: paths and language, never settings or secrets."""
    return {name: value for name, value in os.environ.items() if name in _SPOKEN_OF or name.startswith("LC_")}


def ahead_of(timeout: float | None) -> float | None:
    """Return a limit just before the caller's own, so that what was printed until then can still be told."""
    return None if timeout is None else timeout - min(_MARGIN_SECONDS, timeout / 20)


def kill_group(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process and to what it started, some of which may outlive it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, how)


class Capture:
    """Reads a pipe as it fills and keeps its beginning, so that the writer never has to wait."""

    def __init__(self, limit: int) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._limit = limit
        self._kept = bytearray()
        self._truncated = False
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.reader, self._drain)

    def _drain(self) -> None:
        while True:
            try:
                piece = os.read(self.reader, 65_536)
            except BlockingIOError:
                return
            if not piece:
                self._loop.remove_reader(self.reader)
                self._ended.set()
                return
            room = self._limit - len(self._kept)
            self._kept += piece[:room]
            self._truncated = self._truncated or len(piece) > room

    def started(self) -> None:
        """Leave the writing end to the process that has it now."""
        os.close(self.writer)

    def take(self) -> Printed:
        """Return what was written since the last time."""
        if not self._ended.is_set():
            self._drain()
        printed = Printed(self._kept.decode(errors="replace"), self._truncated)
        self._kept.clear()
        self._truncated = False
        return printed

    async def ended(self) -> None:
        """Wait until nobody has the writing end any more."""
        await self._ended.wait()

    def close(self) -> None:
        """Stop reading."""
        self._loop.remove_reader(self.reader)
        os.close(self.reader)


_NOTHING = Printed("", truncated=False)


class Ended(NamedTuple):
    """How a process ended: its exit code, negative for a signal, and what it printed; no code if it took too long."""

    exit_code: int | None
    stdout: Printed
    stderr: Printed


async def run_process(
    command: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    deadline: float | None = None,
    capture: bool = True,
    given: bytes | None = None,
    confined: bool = True,
    as_account: bool = False,
) -> Ended:
    """Run a program to its end; at the deadline (of the loop's clock) or when cancelled, it is ended with all it started.

    `given` is what it reads from its standard input, which is empty if left out. What it leaves running is killed when it
    ends, also what left its session. A program of our own choice need not be `confined`; one that keeps files for us runs
    `as_account`, never under another user id. Raises OSError when it cannot be started.
    """
    pipes = [Capture(MAX_OUTPUT), Capture(MAX_OUTPUT)] if capture else []
    try:
        try:
            process = await ToolProcess.start(
                command,
                stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
                stdout=pipes[0].writer if pipes else asyncio.subprocess.DEVNULL,
                stderr=pipes[1].writer if pipes else asyncio.subprocess.DEVNULL,
                cwd=cwd,
                env={**clean_environment(), **(env or {})},
                confined=confined,
                as_account=as_account,
            )
        finally:
            for pipe in pipes:
                pipe.started()
        if given is not None:
            assert process.process.stdin is not None
            process.process.stdin.write(given)
            process.process.stdin.close()
        code = await _ended(process, deadline)
        stdout, stderr = [pipe.take() for pipe in pipes] or (_NOTHING, _NOTHING)
        return Ended(code, stdout, stderr)
    finally:
        for pipe in pipes:
            pipe.close()


class ToolProcess:
    """A program of a task. Where it can be, it is confined and supervised; elsewhere its process group stands for all it started."""

    def __init__(self, process: asyncio.subprocess.Process, confined: Confined | None) -> None:
        self.process = process
        self._confined = confined

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        confined: bool = True,
        as_account: bool = False,
        memory_bytes: int | None = None,
        **streams: Any,
    ) -> ToolProcess:
        """Start a program; OSError when it cannot be."""
        if not confined or sys.platform != "linux":
            own = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, start_new_session=True, **streams)
            return cls(own, None)
        rules = await asyncio.to_thread(policy)
        if as_account:
            rules = replace(rules, user=None, writes_kept=True)
        most = memory_bytes or rules.memory_bytes or enough_memory()
        prepared = Confined(command, rules, env=env, memory_bytes=most, directory=cwd)
        try:
            process = await asyncio.create_subprocess_exec(
                *prepared.command, env=prepared.env, pass_fds=prepared.descriptors, start_new_session=True, **streams
            )
        except BaseException:
            prepared.ended()
            raise
        finally:
            prepared.started()
        return cls(process, prepared)

    def ask_to_end(self) -> None:
        """Send the signal that asks a program and its process group to end."""
        if self._confined is None:
            kill_group(self.process.pid, signal.SIGTERM)
        else:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        """End the program and all that it started; any number of times."""
        try:
            if self._confined is None:
                kill_group(self.process.pid)
                await self.process.wait()
            else:
                await await_end(self.process, self._confined)
        finally:
            if self._confined is not None:
                self._confined.ended()


async def _ended(process: ToolProcess, deadline: float | None) -> int | None:
    try:
        async with asyncio.timeout_at(deadline):
            return await process.process.wait()
    except TimeoutError:
        return None
    finally:
        await asyncio.shield(_stop(process))


async def _stop(process: ToolProcess) -> None:
    """Ask the program to end, and make it end with all it started if it does not."""
    if process.process.returncode is None:
        process.ask_to_end()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.process.wait()
    await process.kill()
