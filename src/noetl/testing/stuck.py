"""Tells where a process stands that should have ended: asked by SIGUSR1, it writes the stacks of threads and tasks to stderr."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys

ASKED = signal.SIGUSR1


def tell_when_asked() -> None:
    """Let the process of the running loop answer, its threads also while the loop itself stands still."""
    asyncio.get_running_loop().add_signal_handler(ASKED, _tell)
    faulthandler.register(ASKED, all_threads=True, chain=True)


def _tell() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
