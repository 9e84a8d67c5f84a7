"""`noetl` commands in processes of their own: in goes a folder, out comes what starts them there, each with a log of its
own; none outlives the block.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Begin = Callable[..., "subprocess.Popen[str]"]
"""Starts a command with its arguments, and settings as environment variables."""


class Processes:
    """The processes of a test, in the order they were started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def begin(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command, whose output is the test's to read."""
        with (self._folder / f"{len(self.started)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "noetl", *arguments],
                cwd=self._folder, env=os.environ | environ, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def begin_on_shards(self, said: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start a role that works on shards, and wait until it has said this and has them."""
        process = self.begin(*arguments, **environ)
        for words in (said, "shards: 0 1 "):
            told = line(process)
            assert words in told, f"{told!r}: {self.log_of(process).read_text()}"
        return process

    def log_of(self, process: subprocess.Popen[str]) -> Path:
        """Return where a process writes its errors."""
        return self._folder / f"{self.started.index(process)}.log"

    def kill(self) -> None:
        """Leave no process behind."""
        for process in self.started:
            process.kill()
            process.communicate()


@contextmanager
def processes_in(folder: Path) -> Iterator[Processes]:
    """Give what starts processes in a folder, and kill them after the block."""
    processes = Processes(folder)
    try:
        yield processes
    finally:
        processes.kill()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
