"""The regions one process owns: made inside the node's budget, unlinked when their time is over, large ones used again.

A region is used again only when no reader holds it: page faults make a fresh one ten times as dear as a warm one.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from noetl import faults
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.shared_memory.node import Busy, NodeDirectory
from noetl.kernel.payloads.shared_memory.region import MAPPED_FROM, Segment, capacity_for, charge_for, region_name

MOST_MAPPED: Final = 64
"""Regions one process keeps mapped, since each takes a file descriptor."""
IDLE_SECONDS: Final = 60.0
"""How long a region that nobody needs waits to be used again."""
_LOOK_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 5.0


class Segments:
    """Makes, keeps and removes the regions of this process."""

    def __init__(
        self, node: NodeDirectory, budget: int, grace: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node = node
        self._budget = budget
        self._grace = grace
        self._clock = clock
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._live: list[tuple[float, int, Segment]] = []
        self._free: list[tuple[float, Segment]] = []
        self._held: list[Segment] = []
        self._mapped = 0
        self._swept_at = clock()
        self._closed = False
        self._thread: threading.Thread | None = None

    def write(self, key: str, data: bytes | memoryview, origin: Origin) -> Segment | None:
        """Put a table into a region and return it, to be kept or dropped; None where the budget has no room.

        OSError where there is no memory, Busy where another process holds everybody up.
        """
        faults.reach("shm.before_write")
        name = region_name(origin.execution_id, origin.frame_id, self._node.tag, self._node.owner, next(self._numbers))
        segment = self._taken(self._node.place(name), len(data))
        if segment is None:
            return None
        segment.name, segment.key, segment.seconds = name, key, origin.lease_seconds + self._grace
        try:
            segment.write(data)
            if segment.is_mapped:
                segment.give()
        except BaseException:
            self.drop(segment)
            raise
        faults.reach("shm.after_write")
        return segment

    def keep(self, segment: Segment) -> None:
        """Let a region stand until its time is over."""
        with self._lock:
            heapq.heappush(self._live, (self._clock() + segment.seconds, next(self._numbers), segment))
            self._start()
            self._wake.notify()

    def _taken(self, path: str, length: int) -> Segment | None:
        capacity = capacity_for(length)
        with self._lock:
            for place, (_, segment) in enumerate(self._free):
                if capacity <= segment.capacity <= 2 * capacity:
                    del self._free[place]
                    segment.rename(path)
                    return segment
            mapped = capacity >= MAPPED_FROM and self._mapped < MOST_MAPPED
            self._mapped += mapped
        charge, admitted, made = charge_for(capacity), False, None
        try:
            admitted = self._admitted(charge)
            made = Segment(path, capacity, mapped=mapped) if admitted else None
        finally:
            if made is None:
                with self._lock:
                    self._mapped -= mapped
                if admitted:
                    self._node.release(charge)
        return made

    def _admitted(self, charge: int) -> bool:
        if charge > self._budget:
            return False
        if self._node.reserve(charge, self._budget):
            return True
        with self._lock:
            idle, self._free = self._free, []
            for _, segment in idle:
                self.drop(segment)
            due = self._clock() - self._swept_at >= _SWEEP_SECONDS
            if due:
                self._swept_at = self._clock()
        if due:
            self._node.sweep()
        return bool(idle or due) and self._node.reserve(charge, self._budget)

    def expire(self) -> float | None:
        """Remove what is over, and return the seconds until there is something to do again; None if there is nothing."""
        with self._lock:
            now = self._clock()
            while self._live and self._live[0][0] <= now:
                self._end(heapq.heappop(self._live)[2], now)
            for segment in [one for one in self._held if one.take()]:
                self._held.remove(segment)
                self.drop(segment)
            while self._free and self._free[0][0] + IDLE_SECONDS <= now:
                self.drop(self._free.pop(0)[1])
            waits = [self._live[0][0] - now] if self._live else []
            waits += [_LOOK_SECONDS] if self._held else []
            waits += [self._free[0][0] + IDLE_SECONDS - now] if self._free else []
            return max(0.0, min(waits)) if waits else None

    def _end(self, segment: Segment, now: float) -> None:
        self._node.hints.forget(segment.key, segment.name)
        faults.reach("shm.before_unlink")
        if not segment.is_mapped:
            self.drop(segment)
        elif segment.take():
            self._free.append((now, segment))
        else:
            # A reader holds it: it loses its name now, and its place in the budget when the reader is done.
            segment.unlink()
            self._held.append(segment)

    def drop(self, segment: Segment) -> None:
        """Remove a region and give back what it took of the budget."""
        self._mapped -= segment.is_mapped
        segment.remove()
        self._node.release(segment.charge)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="noetl-regions", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._wake:
            while not self._closed:
                wait: float | None = _LOOK_SECONDS
                with suppress(OSError, Busy):
                    wait = self.expire()
                self._wake.wait(wait)

    def close(self) -> None:
        """Remove every region of this process."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            gone = [segment for _, _, segment in self._live] + [segment for _, segment in self._free] + self._held
            self._live, self._free, self._held = [], [], []
            for segment in gone:
                self._node.hints.forget(segment.key, segment.name)
                self.drop(segment)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def abandon(self) -> None:
        """Let go of everything without removing it, as a forked child must."""
        for segment in [*(one for _, _, one in self._live), *(one for _, one in self._free), *self._held]:
            segment.close()
        self._live, self._free, self._held = [], [], []
        self._thread = None
