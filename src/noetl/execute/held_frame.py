"""Frames a slot holds: each is kept by heartbeats from when it was granted until its end is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar, overload

from noetl.dispatch.grants import FrameGrant, FrameSoFar, LeaseRef
from noetl.errors import LeaseLost
from noetl.execute.frame_rows import FrameRun
from noetl.leases.heartbeats import Holding
from noetl.stream.ended import ended

T = TypeVar("T")


class HeldFrame:
    """A frame under its lease, with its rows where they are known."""

    def __init__(self, frame: FrameGrant, rows: list[Any] | None) -> None:
        self.frame = frame
        self.rows = rows
        self.is_lost = False
        """Whether somebody else has it now."""
        self.is_reported = False
        """Whether its end was sent: its row is gone then, and whoever renews its lease finds it lost."""
        self.is_recording = False
        """Whether its end is recorded beside the work on another frame."""
        self.run: FrameRun | None = None
        """The work on its rows, once that has begun."""
        self._work: asyncio.Task[Any] | None = None

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin to work it off; that is stopped when the lease is lost."""
        task = asyncio.get_running_loop().create_task(work)
        self._work = task
        if self.is_lost:
            task.cancel()
        return task

    async def while_held(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for it while another frame is worked off; `LeaseLost` when it is lost before that is done."""
        task = self.begin(work)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await ended(task)
            raise
        if task.cancelled():
            raise LeaseLost(f"frame {self.frame.frame_id} was taken away before its end")
        task.result()

    def lose(self) -> None:
        """Stop its work, unless that is over and the lease gone with its end."""
        if self.is_reported:
            return
        self.is_lost = True
        if self._work is not None:
            self._work.cancel()


class HeldFrames:
    """The frames of one slot."""

    def __init__(self, heartbeats: Holding[LeaseRef]) -> None:
        self._heartbeats = heartbeats
        self._frames: dict[LeaseRef, HeldFrame] = {}

    @overload
    def hold(self, frame: None, rows: None = None) -> None: ...
    @overload
    def hold(self, frame: FrameGrant, rows: list[Any] | None = None) -> HeldFrame: ...
    @overload
    def hold(self, frame: FrameGrant | None, rows: list[Any] | None = None) -> HeldFrame | None: ...
    def hold(self, frame: FrameGrant | None, rows: list[Any] | None = None) -> HeldFrame | None:
        """Keep a frame that was granted just now."""
        if frame is None:
            return None
        held = HeldFrame(frame, rows)
        self._frames[frame.lease] = held
        self._heartbeats.hold(frame.lease, frame.lease_seconds, held.lose)
        return held

    def release(self, held: HeldFrame) -> None:
        """Keep a frame no longer."""
        self._frames.pop(held.frame.lease, None)
        self._heartbeats.release(held.frame.lease)

    def release_all(self) -> None:
        """Keep no frame any longer."""
        for lease in self._frames:
            self._heartbeats.release(lease)
        self._frames.clear()

    def so_far(self, leases: Collection[LeaseRef]) -> list[FrameSoFar]:
        """Say how far the frames under some leases are."""
        return [held.run.so_far() for lease, held in self._frames.items() if lease in leases and held.run is not None]
