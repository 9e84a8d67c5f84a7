"""An event loop whose time is virtual: when nobody can go on, the clock jumps to the next timer, and nobody ever waits.

Callbacks run in the order asyncio promises. What differs from run to run in a real loop is made the same here: sets of tasks
and futures are ordered by numbers instead of addresses, and work for threads is done at once, in this thread.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.testing.simulation.world.process import Process


class Stuck(Exception):
    """Nobody can go on, and no timer is set."""


class _NumberedTask(asyncio.Task[Any]):
    """A task that stands in sets by its number."""

    def __init__(self, coroutine: Any, number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class _NumberedFuture(asyncio.Future[Any]):
    """A future that stands in sets by its number."""

    def __init__(self, number: int, **options: Any) -> None:
        self.number = number
        super().__init__(**options)

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one world. `owner_of` tells to which process a callback, or what runs now, belongs."""

    def __init__(self, owner_of: Callable[[Context | None], Process | None]) -> None:
        super().__init__()
        self._now = 0.0
        self._numbers = count(1)
        self._owner_of = owner_of
        self.frozen = 0
        """How many processes stand still."""
        self.after_step: Callable[[], None] = lambda: None
        """Called each time the loop has run what was ready."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """Return a numbered future."""
        return _NumberedFuture(next(self._numbers), loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Return a numbered task, known to the process that makes it."""
        number = next(self._numbers)
        task = _NumberedTask(coro, number, loop=self, name=str(name or f"task-{number}"), context=context)
        owner = self._owner_of(context)
        if owner is not None:
            owner.tasks[task] = None
            task.add_done_callback(owner.forget)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do at once what would be done in a thread: a thread would make the order of things its own."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as problem:
            done.set_exception(problem)
        return done

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Stuck("nobody can go on, and no timer is set")
            self._now = max(self._now, timers[0]._when)
        while timers and timers[0]._when <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if self.frozen:
                owner = self._owner_of(handle._context)
                if owner is not None and owner.is_frozen:
                    owner.deferred.append(handle)
                    continue
            handle._run()
        self.after_step()

    def resume(self, handles: list[asyncio.Handle]) -> None:
        """Let callbacks run that were kept back."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer where it is; it is dropped when its time comes."""

    def _write_to_self(self) -> None:
        """Wake nobody: there is no other thread."""
