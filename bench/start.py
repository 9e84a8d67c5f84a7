"""How long a user waits before anything happens: the help text and the start of an existing embedded database."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from bench.database_testbed import folder_for_server
from bench.figure import Figure
from noetl.runtime.postgres.embedded import EmbeddedServer

ROUNDS = 7

_START = """
import sys, time
from pathlib import Path
began = time.perf_counter()
from noetl.runtime.postgres.embedded import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1])):
    sys.stdout.write(str(time.perf_counter() - began))
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure whole processes, as a user starts them."""
    measures = {"start.help": _help, "start.embedded": _embedded}
    return [measures[name]() for name in wanted]


def _help() -> Figure:
    command = [str(Path(sys.executable).with_name("noetl")), "--help"]
    return Figure.plain("start.help", statistics.median(_timed(command) for _ in range(ROUNDS)), "s", 0.3, "less")


def _embedded() -> Figure:
    folder = folder_for_server()
    home = folder / "home"
    try:
        with EmbeddedServer(home):
            pass
        times = [
            float(subprocess.run([sys.executable, "-c", _START, str(home)], check=True, capture_output=True).stdout)
            for _ in range(ROUNDS)
        ]
    finally:
        EmbeddedServer(home).destroy()
        shutil.rmtree(folder)
    return Figure.plain("start.embedded", statistics.median(times), "s", 2.0, "less")


def _timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began
