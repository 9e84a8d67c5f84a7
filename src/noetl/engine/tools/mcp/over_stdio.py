"""Standard input and output: the server is a process of the task, a line is a message, and it ends with the task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from noetl.engine.tools.http.connection import TooLarge
from noetl.engine.tools.mcp.messages import LIMIT, answers, notification, parsed, reply_to, request, result_of
from noetl.engine.tools.programs.process import Capture, ToolProcess, clean_environment

_KEPT_OF_ERRORS: Final = 64 * 1024
_SHOWN: Final = 2_000
_GRACE_SECONDS: Final = 2.0


class ServerEnded(Exception):
    """The process ended before it answered."""

    def __init__(self, exit_code: int | None, printed: str) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code, self.printed = exit_code, printed


class StdioChannel:
    """A way to a server that is a process, the first of a process group of its own."""

    def __init__(self, started: ToolProcess, errors: Capture) -> None:
        process = started.process
        assert process.stdin is not None
        assert process.stdout is not None
        self._started, self._process, self._errors = started, process, errors
        self._input, self._output = process.stdin, process.stdout
        self._number = 0
        self._unanswered: int | None = None

    @classmethod
    async def start(cls, command: Sequence[str], *, cwd: str | None, env: Mapping[str, str]) -> StdioChannel:
        """Start the server; OSError when it cannot be. It knows of the worker's environment what a shell task does."""
        errors = Capture(_KEPT_OF_ERRORS)
        try:
            process = await ToolProcess.start(
                command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors.writer,
                limit=LIMIT,
                cwd=cwd,
                env={**clean_environment(), **env},
            )
        except BaseException:
            errors.close()
            raise
        finally:
            errors.started()
        return cls(process, errors)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Write a request and read lines until its answer."""
        self._number += 1
        number = self._unanswered = self._number
        await self._write(request(number, method, params))
        while True:
            message = parsed(await self._line())
            if answers(message, number):
                self._unanswered = None
                return result_of(message)
            reply = reply_to(message)
            if reply is not None:
                await self._write(reply)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Write a notification."""
        await self._write(notification(method, params))

    def agreed(self, protocol_version: str) -> None:
        """Do nothing: a process that was told the version knows it."""

    async def aclose(self) -> None:
        """Close the server's input, which tells it to end; a process group that does not end is made to."""
        try:
            await asyncio.shield(self._ended())
        finally:
            await asyncio.shield(self._started.kill())
            self._errors.close()

    async def _ended(self) -> None:
        self._input.close()
        # One that still works on a request may take long to look at its input.
        if self._unanswered is None and await self._ends_within(_GRACE_SECONDS):
            return
        self._started.ask_to_end()
        await self._ends_within(_GRACE_SECONDS)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def _write(self, message: bytes) -> None:
        try:
            self._input.write(message + b"\n")
            await self._input.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._gone() from None

    async def _line(self) -> bytes:
        try:
            line = await self._output.readline()
        except ValueError:
            raise TooLarge from None
        if not line.endswith(b"\n"):
            raise await self._gone()
        return line if line.strip() else await self._line()

    async def _gone(self) -> ServerEnded:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._process.wait()
                await self._errors.ended()
        return ServerEnded(self._process.returncode, self._errors.take().text[-_SHOWN:].strip())
