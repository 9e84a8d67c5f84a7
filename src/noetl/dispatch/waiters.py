"""Workers of this process, or at its door, that wait for a command.

One that is issued here meanwhile is claimed for them in the transaction that issues it, so that nobody has to look for it
and claim it in another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from noetl.dispatch.grants import CommandGrant
from noetl.dispatch.locality import ANYWHERE, Claimant, Patience, nearest
from noetl.model.stream import Scope
from noetl.plan.places import Place


class Waiter:
    """One worker that waits for up to `want` commands, up to `loops` of them slots of loops."""

    def __init__(self, worker: str, want: int, who: Claimant, loops: int) -> None:
        self.worker = worker
        self.who = who
        self.want = want
        self.loops = loops
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it was given something."""
        self._promised = 0
        self._granted: list[CommandGrant] = []
        self._settled: asyncio.Future[None] | None = None

    def give(self, grant: CommandGrant) -> None:
        """Hand over what was promised."""
        self._granted.append(grant)
        if not self.woken.done():
            self.woken.set_result(None)

    @contextmanager
    def promised(self, *, slot: bool = False) -> Iterator[Waiter]:
        """Keep it waiting for the time of the block, in which it may be given one command, or one slot of a loop."""
        self.want -= 1
        self.loops -= slot
        self._promised += 1
        try:
            yield self
        finally:
            self._promised -= 1
            if self._settled is not None and not self._promised and not self._settled.done():
                self._settled.set_result(None)

    async def granted(self) -> list[CommandGrant]:
        """Return what it was given, once nothing is promised any more: a promise lasts as long as its transaction."""
        if self._promised:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled
        return self._granted


class Waiters:
    """All that wait, by organization, each in its turn."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._waiting: dict[Scope, deque[Waiter]] = {}

    @contextmanager
    def waiting(
        self, scope: Scope, worker: str, want: int, who: Claimant = ANYWHERE, loops: int | None = None
    ) -> Iterator[Waiter]:
        """Take promises for a worker for the time of the block."""
        waiter = Waiter(worker, want, who, want if loops is None else loops)
        line = self._waiting.setdefault(scope, deque())
        line.append(waiter)
        try:
            yield waiter
        finally:
            if waiter in line:
                line.remove(waiter)
            if not line and self._waiting.get(scope) is line:
                del self._waiting[scope]

    def next(self, scope: Scope, near: Place | None = None, *, slot: bool = False) -> Waiter | None:
        """Return the next in turn that wants one more, if anybody waits; of work that lies somewhere, the nearest."""
        line = self._waiting.get(scope)
        if not line:
            return None
        able = (one for one in line if one.loops > 0) if slot else iter(line)
        waiter = next(able, None) if near is None else nearest(((one.who, one) for one in able), near, self._patience)
        if waiter is None:
            return None
        line.remove(waiter)
        if waiter.want > 1:
            line.append(waiter)
        return waiter
