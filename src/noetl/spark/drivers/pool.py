"""The Spark drivers of one worker: few processes, each for one bundle's Python and, when isolated, one organization.

A driver is started on request or in advance; a spare one takes whatever comes first. Beyond the limit the one that has
been idle longest makes room, and one that everybody who used it wants to be let go after a while is. A dead one is
replaced by the next request.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from noetl.errors import Unavailable
from noetl.spark.drivers.process import Driver, DriverProcess
from noetl.spark.session import class_archive
from noetl.spark.session.options import SparkOptions

LIVE: Final = 2

_Key = tuple[str, str]
"""Digest of the Python a driver serves and the organization it serves, empty when they share."""


class _Place:
    """One live driver: whom it serves, and how many hold it."""

    def __init__(self, process: DriverProcess) -> None:
        self.process = process
        self.key: _Key | None = None
        self.bound: asyncio.Task[None] | None = None
        self.holders = 0
        self.used = 0
        self.idle_seconds = 0.0
        """How long it is kept without holders: the longest that any of them asked for."""


class Drivers:
    """Hands out drivers; `close` ends them all."""

    def __init__(self, options: SparkOptions, *, live: int = LIVE, isolate: bool = True) -> None:
        self._options = options
        self._live = live
        self._isolate = isolate
        self._places: list[_Place] = []
        self._freed = asyncio.Event()
        self._requests = itertools.count(1)
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    def warm(self) -> None:
        """Start a driver in the background if none is there; it will serve whoever comes first."""
        if all(place.process.dead for place in self._places):
            self._places.append(_Place(DriverProcess(self._options)))

    @asynccontextmanager
    async def for_(
        self, code_digest: str, bundle: bytes, organization: str, *, idle_seconds: float | None = None
    ) -> AsyncIterator[Driver]:
        """Hold a driver that serves this Python for this organization; waits for a start, or for one to be idle.

        `idle_seconds` lets it go when nobody wanted it for so long; None keeps it as long as there is room.
        """
        place = await self._hold((code_digest, organization if self._isolate else ""))
        place.idle_seconds = max(place.idle_seconds, math.inf if idle_seconds is None else idle_seconds)
        try:
            place.bound = place.bound or asyncio.create_task(self._bind(place, code_digest, bundle))
            await asyncio.shield(place.bound)
            ready = await place.process.ready()
            yield Driver(place.process, ready.application_id, organization)
        finally:
            place.holders -= 1
            self._freed.set()
            if not place.holders and not math.isinf(place.idle_seconds):
                asyncio.get_running_loop().call_later(place.idle_seconds, self._let_go, place, place.used)

    def _let_go(self, place: _Place, used: int) -> None:
        """End a driver that nobody wanted since."""
        if place in self._places and not place.holders and place.used == used:
            self._places.remove(place)
            leaving = asyncio.create_task(place.process.close())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def interrupt_left(self, application_id: str, job_tag: str, organization: str) -> None:
        """Stop what a driver of a worker that is gone left running; only a Spark Connect server has such things."""
        if self._options.kind == "connect":
            async with self.for_("", b"", organization) as driver:
                await driver.interrupt_left(application_id, job_tag)

    async def close(self) -> None:
        """End all drivers; then, if there is no class-data archive yet, one begins to be made for the next start."""
        self._closed = True
        self._freed.set()
        places, self._places = self._places, []
        await asyncio.gather(*self._leaving, *(place.process.close() for place in places))
        if any(place.key is not None for place in places):
            await asyncio.to_thread(class_archive.begin, self._options)

    async def _hold(self, key: _Key) -> _Place:
        while (place := self._found(key)) is None:
            idle = [one for one in self._places if one.holders == 0]
            if idle:
                oldest = min(idle, key=lambda one: one.used)
                self._places.remove(oldest)
                await oldest.process.close()
            else:
                self._freed.clear()
                await self._freed.wait()
        place.key = key
        place.holders += 1
        place.used = next(self._requests)
        return place

    def _found(self, key: _Key) -> _Place | None:
        """Return the driver that serves this key, a spare or a new one; None while the limit is reached."""
        if self._closed:
            raise Unavailable("the Spark drivers of this worker were closed")
        self._places = [place for place in self._places if not place.process.dead]
        for wanted in (key, None):
            for place in self._places:
                if place.key == wanted:
                    return place
        if len(self._places) >= self._live:
            return None
        place = _Place(DriverProcess(self._options))
        self._places.append(place)
        return place

    async def _bind(self, place: _Place, code_digest: str, bundle: bytes) -> None:
        """Wait for Spark and give it the bundle's Python."""
        try:
            await place.process.ready()
            if code_digest:
                above = Path(self._options.home, "bundles")
                place.process.use_code(*await asyncio.to_thread(unpack, bundle, above, code_digest))
        except BaseException:
            place.process.kill()
            raise


def unpack(bundle: bytes, above: Path, code_digest: str) -> tuple[Path, Path]:
    """Unpack a bundle once and return its directory and its archive; both stand whole or not at all."""
    directory = above.absolute() / code_digest
    zipped = directory.with_suffix(".zip")
    above.mkdir(parents=True, exist_ok=True)
    if not zipped.exists():
        fresh = zipped.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(bundle)
        fresh.replace(zipped)
    if not directory.exists():
        scratch = Path(tempfile.mkdtemp(dir=above))
        with zipfile.ZipFile(io.BytesIO(bundle)) as opened:
            opened.extractall(scratch)
        try:
            scratch.rename(directory)
        except OSError:  # another process was first, and what it unpacked is the same
            shutil.rmtree(scratch)
    return directory, zipped
