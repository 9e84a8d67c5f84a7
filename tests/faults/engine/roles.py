"""`noetl server` and `noetl worker` as processes, on the database of a testbed, to be killed and started again."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from tests.faults.killable import Killable

from noetl.testing.engines.short_leases import WAIT_SECONDS


class Role(Killable):
    """A role of the command line in a process of its own."""

    def __init__(self, url: str, home: Path, *arguments: str, fault: str = "") -> None:
        environ = {"NOETL_DATABASE_URL": url, "NOETL_HOME": str(home), "NOETL_FAULT": fault}
        log = home / "roles.log"
        super().__init__("-m", "noetl", *arguments, log=log, environ=environ, patience=WAIT_SECONDS, cwd=home)

    async def says(self, words: str) -> None:
        """Wait until it prints a line that starts so."""
        assert self._popen.stdout is not None
        while line := await asyncio.wait_for(asyncio.to_thread(self._popen.stdout.readline), self._patience):
            if line.startswith(words):
                return
        raise AssertionError(f"it ended without {words!r}: {self._log.read_text()}")


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
