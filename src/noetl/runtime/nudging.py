"""Tells other processes at once that work waits, by a note that all of them share; without it they look twice a second.

The note is a hint: lost, old or wiped, it costs somebody half a second and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from noetl.dispatch.signal import Signal
from noetl.runtime.hints import passing
from noetl.stream.hints import Hints

KEY: Final = "work"
LOOK_SECONDS: Final = 0.05


@asynccontextmanager
async def nudging(signal: Signal, hints: Hints) -> AsyncIterator[None]:
    """Pass touches of a signal on to the processes that share the hints, and theirs to it, for the time of the block."""
    async with passing(hints, KEY, lambda: signal.touch(heard=True), LOOK_SECONDS) as told:
        signal.passed_on = told
        try:
            yield
        finally:
            signal.passed_on = None
