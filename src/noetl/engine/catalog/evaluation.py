"""Evaluates what users wrote: at once where that is quick, else in a thread beside the event loop, bounded in time.

Nobody waits for another organization's texts: one organization has one evaluation under way at a time, and those that
wait for a thread are served in turn. A thread that computes takes the interpreter from the event loop for 5 ms at most
(`sys.getswitchinterval`), so everything else goes on, if more slowly.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from noetl.language.templates.bounds.meter import (
    INLINE_STEPS,
    METER,
    STEPS_MAX,
    BoundExceeded,
    Lengthy,
    budget,
    open_budget,
)
from noetl.model.stream import Scope

T = TypeVar("T")

SECONDS: Final = 30.0
"""How long an evaluation may take. Steps are what bounds it; this is for what steps do not see."""
THREADS: Final = 2


def at_once(evaluate: Callable[..., T], *args: Any) -> T:
    """Evaluate something quick; `Lengthy` if it is not, and then nothing has happened yet."""
    if METER.is_open:
        return evaluate(*args)
    open_budget(INLINE_STEPS, is_inline=True)
    try:
        return evaluate(*args)
    finally:
        METER.is_open = False


class Evaluating:
    """The evaluations of one process."""

    def __init__(
        self, *, seconds: float = SECONDS, threads: int = THREADS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        """How long an evaluation beside the event loop may take."""
        self.steps = STEPS_MAX
        """How many steps it may take."""
        self._free = asyncio.Semaphore(threads)
        self._turns: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        self._monotonic = monotonic

    async def run(self, scope: Scope, evaluate: Callable[[], T]) -> T:
        """Evaluate something without effects, which may be begun a second time: at once if it is quick, else beside."""
        try:
            return at_once(evaluate)
        except Lengthy:
            return await self.beside(scope, evaluate)

    async def beside(self, scope: Scope, evaluate: Callable[[], T]) -> T:
        """Evaluate something in a thread, when it is its organization's turn and a thread is free."""
        async with self._turn(scope):
            await self._free.acquire()
            ended = asyncio.get_running_loop().run_in_executor(_THREADS, lambda: self._bounded(evaluate))
            # The thread goes on until it ends, whoever stops waiting for it.
            ended.add_done_callback(lambda _: self._free.release())
            return await asyncio.shield(ended)

    @asynccontextmanager
    async def _turn(self, scope: Scope) -> AsyncIterator[None]:
        turn = self._turns.get(scope)
        if turn is None:
            turn = self._turns[scope] = asyncio.Lock()
        async with turn:
            yield

    def _bounded(self, evaluate: Callable[[], T]) -> T:
        deadline = self._monotonic() + self.seconds

        def look() -> None:
            if self._monotonic() > deadline:
                raise BoundExceeded(f"it takes longer than {self.seconds:g} seconds")

        with budget(self.steps, look=look):
            return evaluate()


class _DaemonThreads(Executor):
    """Runs each work in a thread of its own that does not keep the process from ending."""

    def submit(self, work: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        """Begin a work and return how it will end."""
        ended: Future[T] = Future()

        def run() -> None:
            try:
                value = work(*args, **named)
            except BaseException as problem:
                ended.set_exception(problem)
            else:
                ended.set_result(value)

        threading.Thread(target=run, name="noetl-evaluating", daemon=True).start()
        return ended


_THREADS: Final = _DaemonThreads()
