"""Processes of a simulated world: each may be killed between any two steps, stand still for a while, and start again."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from noetl.testing.simulation.world.loop import SimulatedLoop

_OWNER: ContextVar[Process | None] = ContextVar("simulated process", default=None)

QUICK_SECONDS, SLOW_SECONDS = 0.06, 1.2
"""How long a call to the database or the store takes, mostly and now and then."""


class Died(BaseException):
    """The process was killed: nothing it does from now on reaches anybody."""


class Process:
    """One process, from its start to its death. `seed` makes its delays its own, whatever others do."""

    def __init__(self, name: str, loop: SimulatedLoop, seed: str) -> None:
        self.name = name
        self.loop = loop
        self.random = random.Random(seed)  # noqa: S311 - no secret depends on it
        self.is_alive = True
        self.is_frozen = False
        self.was_frozen = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.deferred: list[asyncio.Handle] = []
        self.on_death: list[Callable[[], None]] = []

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Do something in this process."""
        context = copy_context()
        context.run(_OWNER.set, self)
        return self.loop.create_task(work, name=name, context=context)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """Take note that a task ended; how it ended is the business of whoever waits for it."""
        self.tasks.pop(task, None)
        if not task.cancelled():
            task.exception()

    def kill(self) -> None:
        """End it here and now. Its tasks unwind, and whatever they try on their way reaches nobody."""
        if not self.is_alive:
            return
        self.thaw()
        self.is_alive = False
        for task in list(self.tasks):
            task.cancel()
        for told in self.on_death:
            told()

    def freeze(self) -> None:
        """Stand still, timers too, as a process that is stopped or out of memory does."""
        if self.is_alive and not self.is_frozen:
            self.is_frozen = self.was_frozen = True
            self.loop.frozen += 1

    def thaw(self) -> None:
        """Go on exactly where it stood, however late that is."""
        if self.is_frozen:
            self.is_frozen = False
            self.loop.frozen -= 1
            self.loop.resume(self.deferred)
            self.deferred = []

    async def step(self) -> None:
        """Let a moment pass at the edge of the process: here others are quicker, and here it may die."""
        if not self.is_alive:
            raise Died(self.name)
        chance = self.random.random()
        if chance < 0.5:
            return
        await asyncio.sleep(chance * (SLOW_SECONDS if chance > 0.97 else QUICK_SECONDS))
        if not self.is_alive:
            raise Died(self.name)


def owner_of(context: Context | None) -> Process | None:
    """Return the process that a context belongs to, or what runs now."""
    return _OWNER.get() if context is None else context.get(_OWNER)


class Edge:
    """Something outside a process, as the process reaches it: every call takes a moment before and after.

    `refuse` may raise instead, as a server that is away does.
    """

    def __init__(self, process: Process, outside: Any, refuse: Callable[[], None] = lambda: None) -> None:
        self._process = process
        self._outside = outside
        self._refuse = refuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._outside, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def called(*values: Any, **named: Any) -> Any:
            await self._process.step()
            self._refuse()
            answer = await found(*values, **named)
            await self._process.step()
            return answer

        self.__dict__[name] = called
        return called
