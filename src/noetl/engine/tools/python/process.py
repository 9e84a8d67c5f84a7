"""One child interpreter, seen from the worker: bytes are asked and answered, what it prints is kept, a kill is final.

The child inherits no descriptor but its channel, and of the environment only what programs need to find their way.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from noetl.engine.confinement.policy import policy
from noetl.engine.confinement.process import Confined
from noetl.engine.tools.programs.process import Capture, Printed, clean_environment, kill_group
from noetl.language.templates import result_fields

MAX_OUTPUT = 64 * 1024
"""How much of each of standard output and error is kept."""

_INTERPRETER_MB = 64
"""What all processes of a task may take together beyond the bound of one: an interpreter without any code of the user's."""

_DYING_SECONDS = 2.0
MAX_RESULT = 64 * 1024 * 1024
_HEADER = 8
_HERE = Path(__file__).parent
_BOOT = """
import sys
from importlib.machinery import SourceFileLoader
def load(name, path):
    module = sys.modules[name] = type(sys)(name)
    exec(SourceFileLoader(name, path).get_code(name), module.__dict__)
    return module
plain, fields, results, names, code, child = (load("_noetl_" + str(at), path) for at, path in enumerate(sys.argv[1:7]))
settings = child.json.loads(sys.argv[7])
del sys.argv[1:]
made = results.Results(fields.repeated_field, fields.may_repeat)
child.serve(settings, code, names.given_names, made, plain.plain)
"""
_FILES = [
    str(_HERE.parent / "plain.py"),
    str(Path(result_fields.__file__)),
    *(str(_HERE / f"{name}.py") for name in ("results", "names", "code", "child")),
]


class ProcessDied(Exception):
    """The child ended before it answered."""


class Child:
    """A child interpreter that is asked one thing at a time."""

    def __init__(self, executable: str, memory_mb: int, sys_path: Sequence[str]) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(0)
        self._out, self._err = Capture(MAX_OUTPUT), Capture(MAX_OUTPUT)
        self._confined: Confined | None = None
        self._killing: asyncio.Task[int] | None = None
        self.calls = 0
        self.sent: set[str] = set()
        """The digests of the code this child has compiled."""
        settings = {
            "channel": theirs.fileno(),
            "memory_bytes": memory_mb * 1024 * 1024,
            "max_result": MAX_RESULT,
            "sys_path": list(sys_path),
        }
        command = [executable, "-I", "-X", "utf8", "-c", _BOOT, *_FILES, json.dumps(settings)]
        try:
            self.process = self._start(command, memory_mb, theirs.fileno())
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            self._out.started()
            self._err.started()

    def _start(self, command: list[str], memory_mb: int, channel: int) -> subprocess.Popen[bytes]:
        env = clean_environment()
        inherited: tuple[int, ...] = (channel,)
        if sys.platform == "linux":
            most = (memory_mb + _INTERPRETER_MB) * 1024 * 1024
            confined = Confined(command, policy(), env=env, memory_bytes=most, inherited=inherited)
            self._confined = confined
            command, env, inherited = confined.command, confined.env, confined.descriptors
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._out.writer,
                stderr=self._err.writer,
                pass_fds=inherited,
                env=env,
                start_new_session=True,
            )
        finally:
            if self._confined is not None:
                self._confined.started()

    @property
    def alive(self) -> bool:
        """Whether the child still runs; one that does not, cannot be asked."""
        return self.process.poll() is None

    async def ask(self, message: bytes) -> bytes:
        """Send a message and return the answer. Whoever gives up waiting must kill the child."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._channel, len(message).to_bytes(_HEADER, "big") + message)
            size = int.from_bytes(await self._receive(loop, _HEADER), "big")
            if size > 2 * MAX_RESULT:
                raise ProcessDied
            return await self._receive(loop, size)
        except OSError as problem:
            raise ProcessDied from problem

    async def _receive(self, loop: asyncio.AbstractEventLoop, size: int) -> bytes:
        pieces = bytearray(size)
        left = memoryview(pieces)
        while left:
            count = await loop.sock_recv_into(self._channel, left)
            if not count:
                raise ProcessDied
            left = left[count:]
        return bytes(pieces)

    def printed(self) -> tuple[Printed, Printed]:
        """Return what the child wrote to standard output and error since the last time."""
        return self._out.take(), self._err.take()

    def interrupt(self) -> None:
        """End the child and everything it started at once; whoever waits for its answer learns that it died."""
        if self._confined is not None:
            self._confined.cut()
        elif self.process.returncode is None:
            kill_group(self.process.pid)
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    async def died(self) -> int:
        """Return how a child ended that gave no answer; one that only hung up is killed."""
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, _DYING_SECONDS)
        return await self.kill()

    async def kill(self) -> int:
        """End the child for good and return its exit code, negative for a signal; any number of times."""
        if self._killing is None:
            self.interrupt()
            self._killing = asyncio.ensure_future(self._reap())
        return await asyncio.shield(self._killing)

    async def _reap(self) -> int:
        code = await asyncio.to_thread(self.process.wait)
        self._close()
        return code

    def _close(self) -> None:
        self._channel.close()
        self._out.close()
        self._err.close()
        if self._confined is not None:
            self._confined.ended()
