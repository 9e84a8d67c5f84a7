"""Processes of tools: what they print is kept up to a bound, what they know of the worker is little, and their end is final."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

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
) -> Ended:
    """Run a program to its end; at the deadline (of the loop's clock) or when cancelled, its process group is ended.

    `given` is what it reads from its standard input, which is empty if left out. What it leaves running in the background is killed when it ends. Raises OSError when it cannot be started.
    """
    pipes = [Capture(MAX_OUTPUT), Capture(MAX_OUTPUT)] if capture else []
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
                stdout=pipes[0].writer if pipes else asyncio.subprocess.DEVNULL,
                stderr=pipes[1].writer if pipes else asyncio.subprocess.DEVNULL,
                cwd=cwd,
                env={**clean_environment(), **(env or {})},
                start_new_session=True,
            )
        finally:
            for pipe in pipes:
                pipe.started()
        if given is not None:
            assert process.stdin is not None
            process.stdin.write(given)
            process.stdin.close()
        code = await _ended(process, deadline)
        stdout, stderr = [pipe.take() for pipe in pipes] or (_NOTHING, _NOTHING)
        return Ended(code, stdout, stderr)
    finally:
        for pipe in pipes:
            pipe.close()


async def _ended(process: asyncio.subprocess.Process, deadline: float | None) -> int | None:
    try:
        async with asyncio.timeout_at(deadline):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        try:
            if process.returncode is None:
                await asyncio.shield(_stop(process))
        finally:
            kill_group(process.pid)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Ask the process group to end, and make it end if it does not."""
    kill_group(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        kill_group(process.pid)
        await process.wait()
