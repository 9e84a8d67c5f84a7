"""One role in a process of its own: started, killed, paused, stopped politely and started again, with one log for all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

STOP_SECONDS: Final = 30.0
"""How long a polite stop may take before the process is killed, as an orchestrator would."""


class RoleProcess:
    """A command of `noetl` that is started again whenever it was ended."""

    def __init__(self, name: str, arguments: tuple[str, ...], folder: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self._arguments = arguments
        self._folder = folder
        self._environ = {**os.environ, **environ}
        self._process: subprocess.Popen[bytes] | None = None
        self.ended_by_itself: list[int] = []
        """Exit codes of ends that nobody asked for."""

    @property
    def log(self) -> Path:
        """Where it writes."""
        return self._folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The process, while it lives."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start it, unless it lives."""
        if self.pid is not None:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "noetl", *self._arguments],
                cwd=self._folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def look(self) -> None:
        """Start it again if it ended by itself, and note that it did."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self.ended_by_itself.append(code)
            self.start()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Let it stand still."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> bool:
        """End it politely; False if it had to be killed."""
        process, self._process = self._process, None
        if process is None:
            return True
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def _signal(self, what: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(what)


def spark_processes(roles: Iterable[RoleProcess]) -> list[psutil.Process]:
    """Return the drivers of Spark that roles have started, and their JVMs."""
    found = []
    for role in roles:
        with suppress(psutil.NoSuchProcess):
            if role.pid is not None:
                found += [one for one in psutil.Process(role.pid).children(recursive=True) if _is_spark(one)]
    return found


def _is_spark(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "java" in process.name() or "noetl.spark.drivers.main" in process.cmdline()
    return False
