"""Commands and frames under their leases: kept by heartbeats, and settled once their end is recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, TypeVar, overload

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameSoFar, LeaseRef
from noetl.engine.dispatch.port import Dispatch
from noetl.engine.platform.waits import Waits
from noetl.engine.tools.port import Settle
from noetl.engine.worker.frame_rows import FrameRun
from noetl.errors import LeaseLost
from noetl.kernel.leases.heartbeats import Holding
from noetl.kernel.stream.cancellation import ended


class HeldCommand:
    """Held by the task that makes it."""

    def __init__(
        self,
        grant: CommandGrant,
        dispatch: Dispatch,
        sleep: Callable[[float], Awaitable[None]],
        stops: Callable[[], bool],
    ) -> None:
        working = asyncio.current_task()
        assert working is not None
        self._working = working
        self._grant = grant
        self._dispatch = dispatch
        self._stops = stops
        self._told = 0
        self.is_lost = False
        """Whether somebody else has it now."""
        self.is_reported = False
        """Whether its end was sent: its row is gone then, and the answer may hand over the next command."""
        self.is_returned = False
        """Whether its work was stopped for another worker to go on with."""
        self.waits = Waits(self._tell, sleep, self.let_go_if_stopping)

    def lose(self) -> None:
        """Stop its work, for it is ours no longer."""
        if not self.is_reported:
            self.is_lost = True
            self._working.cancel()

    def let_go_if_stopping(self) -> None:
        """Stop work that only waits for the platform, if the worker is to stop: others may wait for it as well."""
        if self._stops() and self.waits.now and not self.is_returned:
            self.is_returned = True
            self._working.cancel()

    def goes_on(self) -> bool:
        """Tell, after a cancellation, whether it was only meant for this command; its task then goes on with others."""
        if not self.is_lost and not self.is_returned:
            return False
        self._working.uncancel()
        return True

    async def _tell(self, part: str, reason: str | None) -> None:
        self._told += 1
        await self._dispatch.stalled(self._grant, part, reason, self._told)


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


SETTLE_SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


class Settling:
    """What the tasks of one command left to be settled; each is told once whether what it came to is recorded."""

    def __init__(self) -> None:
        self._left: list[Settle] = []

    def add(self, settle: Settle) -> None:
        """Have something settled after the end of the step."""
        self._left.append(settle)

    async def settle(self, *, recorded: bool) -> None:
        """Tell everybody who has not been told; what fails then is left as if nothing was recorded."""
        while self._left:
            settle = self._left.pop()
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await asyncio.shield(settle(recorded=recorded))
            except Exception as problem:
                # Not its words: those of a client may quote an address with a password in it.
                _log.warning("what a step took could not be settled, and may come again: %s", type(problem).__name__)
