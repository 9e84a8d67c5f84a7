"""`noetl server` and `noetl worker` as processes, on the database of a ground, to be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from noetl.testing.engine import WAIT_SECONDS


class Role:
    """A role of the command line in a process of its own."""

    def __init__(self, url: str, home: Path, *arguments: str, fault: str = "") -> None:
        self._log = home / "roles.log"
        environ = {"NOETL_DATABASE_URL": url, "NOETL_HOME": str(home), "NOETL_FAULT": fault}
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "noetl", *arguments],
                cwd=home, env=dict(os.environ) | environ, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    async def says(self, words: str) -> None:
        """Wait until it prints a line that starts so."""
        assert self._popen.stdout is not None
        while line := await asyncio.wait_for(asyncio.to_thread(self._popen.stdout.readline), WAIT_SECONDS):
            if line.startswith(words):
                return
        raise AssertionError(f"it ended without {words!r}: {self._log.read_text()}")

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(what)

    async def stopped(self) -> None:
        """Wait until it stands still."""
        waiting = asyncio.to_thread(os.waitid, os.P_PID, self._popen.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        found = await asyncio.wait_for(waiting, WAIT_SECONDS)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, self._log.read_text()

    async def ended(self) -> int:
        """Wait for its end and return how it ended."""
        return await asyncio.wait_for(asyncio.to_thread(self._popen.wait), WAIT_SECONDS)

    async def killed(self) -> None:
        """Wait until it was killed."""
        assert await self.ended() == -signal.SIGKILL, self._log.read_text()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()


class Roles:
    """The server of one address and its workers."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home
        self._started: list[Role] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])

    async def server(self, *, fault: str = "") -> Role:
        """Start the server, at the same address each time."""
        role = self._start("server", "--port", self._port, fault=fault)
        await role.says("listening on")
        return role

    def worker(self, slots: int) -> Role:
        """Start a worker that knows the server's address alone."""
        return self._start("worker", "--slots", str(slots), "--server", f"http://127.0.0.1:{self._port}")

    async def verified(self) -> int:
        """Return how `noetl verify` ends."""
        return await self._start("verify").ended()

    def close(self) -> None:
        """Leave no process behind."""
        for role in self._started:
            role.close()

    def _start(self, *arguments: str, fault: str = "") -> Role:
        role = Role(self._url, self._home, *arguments, fault=fault)
        self._started.append(role)
        return role
