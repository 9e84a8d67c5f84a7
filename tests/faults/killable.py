"""A process that a test stops or kills: in goes what Python runs and where it logs, out comes how it stands and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from noetl.testing.stuck import ASKED

ANSWER_SECONDS = 2


class Killable:
    """A Python process, whose output the test reads, and for how long it is waited for."""

    def __init__(
        self, *arguments: str, log: Path, environ: Mapping[str, str], patience: float, cwd: Path | None = None
    ) -> None:
        self._log = log
        self._patience = patience
        # Processes that follow each other share a log: what an earlier one wrote stays.
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=cwd, env={**os.environ, **environ}, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self.pid = self._popen.pid

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(what)

    async def stopped(self) -> None:
        """Wait until it stands still, on our word or at its fault point."""
        waiting = asyncio.to_thread(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        found = await asyncio.wait_for(waiting, self._patience)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, self._log.read_text()

    async def ended(self) -> int:
        """Wait for its end and return how it ended; of one that does not end, tell where it stands."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(self._popen.wait), self._patience)
        except TimeoutError:
            self.send(ASKED)
            # It answers at once, if at all; one that never learnt to answer ends by being asked.
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._popen.wait, ANSWER_SECONDS)
            raise AssertionError(f"the process did not end:\n{self._log.read_text()}") from None

    async def killed(self) -> None:
        """Wait until it was killed, by us or by itself at its fault point."""
        assert await self.ended() == -signal.SIGKILL, self._log.read_text()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
