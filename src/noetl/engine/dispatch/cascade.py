"""Stops executions together with what they started, and finds those that run on after their parent ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby

from noetl.engine.dispatch.executions import Executions
from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.dispatch.open_executions.port import Descendant, OpenExecutions
from noetl.engine.plan.state import State
from noetl.engine.plan.trigger import Cancelled
from noetl.errors import UNREADABLE, VersionConflict
from noetl.model.stream import Scope

AT_ONCE = 16
"""Executions that are cancelled at a time."""
READ_AT_MOST = 1_000
"""Events that are read to cancel an execution; one that has more which this process does not know is cancelled unread."""


class Cascade:
    """Cancels executions of all organizations; `stopped` is called when some were."""

    def __init__(self, running: OpenExecutions, executions: Executions, stopped: Callable[[], None]) -> None:
        self._open = running
        self._executions = executions
        self._stopped = stopped

    async def cancel(self, scope: Scope, execution_id: int, wish: Cancelled, *, below_ended: bool = False) -> list[int]:
        """Cancel an execution that has not ended and, if the wish cascades, all below it; return those cancelled, top first.

        With `below_ended` those are looked for, too, whose parents have ended and let them go on.
        """
        cancelled = [execution_id] if await self._cancelled(scope, execution_id, wish) else []
        if wish.cascade:
            cancelled += await self._below(scope, execution_id, wish, set(cancelled), below_ended=below_ended)
        return cancelled

    async def cancel_waited(self, scope: Scope, parent: State) -> None:
        """Cancel what an execution that failed had waited for, with all below."""
        wish = Cancelled(
            reason=f"its parent {parent.execution_id} ended as {parent.status}", by=f"execution/{parent.execution_id}"
        )
        for execution_id in await self._open.waited_for(scope, parent.execution_id):
            await self.cancel(scope, execution_id, wish)

    async def _below(
        self, scope: Scope, top: int, wish: Cancelled, cancelled: set[int], *, below_ended: bool
    ) -> list[int]:
        stopped: list[int] = []
        problems: list[BaseException] = []
        seen, above = {top}, [top]
        while True:
            found = _unseen(await self._open.below(scope, above), seen)
            if not found and below_ended:
                found = _unseen(await self._open.outlived(scope, top), seen)
            if not found:
                break
            for _, level in groupby(found, key=lambda one: one.level):
                wishes = {one.execution_id: _because(wish, one.parent_execution_id, top, cancelled) for one in level}
                for execution_id, answer in (await self._all_cancelled(scope, wishes)).items():
                    if isinstance(answer, BaseException):
                        problems.append(answer)
                    elif answer:
                        stopped.append(execution_id)
                        cancelled.add(execution_id)
            # What these started while they were being stopped is below them.
            above = [one.execution_id for one in found]
        if problems:
            # One that cannot be stopped keeps none of the others from it.
            raise problems[0]
        return stopped

    async def _all_cancelled(self, scope: Scope, wishes: dict[int, Cancelled]) -> dict[int, bool | BaseException]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(execution_id: int, wish: Cancelled) -> bool:
            async with room:
                return await self._cancelled(scope, execution_id, wish)

        answers = await asyncio.gather(*(one(*each) for each in wishes.items()), return_exceptions=True)
        return dict(zip(wishes, answers, strict=True))

    async def _cancelled(self, scope: Scope, execution_id: int, wish: Cancelled) -> bool:
        while (head := await self._open.head(scope, execution_id)) is not None:
            if head.version - self._executions.version_known(scope, execution_id) <= READ_AT_MOST:
                break
            with suppress(VersionConflict):
                await self._executions.cancel_unread(scope, head, wish)
                self._stopped()
                return True
        try:
            if (await self._executions.state(scope, execution_id)).ended:
                return False
        except UNREADABLE:
            # It can be stopped all the same, and nothing else can be done with it.
            if head is None:
                return False
            await self._executions.cancel_unread(scope, head, wish)
            self._stopped()
            return True
        decided = await self._executions.trigger(scope, execution_id, wish)
        if decided.facts:
            self._stopped()
        return bool(decided.facts)


def _unseen(below: Iterable[Descendant], seen: set[int]) -> list[Descendant]:
    """Return the executions that were not met yet, which are then."""
    found = [one for one in below if one.execution_id not in seen]
    seen.update(one.execution_id for one in found)
    return found


def _because(wish: Cancelled, parent_id: int, top: int, cancelled: set[int]) -> Cancelled:
    said = f"its parent {parent_id} was" if parent_id in cancelled else f"what execution {top} started was"
    return Cancelled(reason=f"{said} cancelled: {wish.reason}", by=wish.by)


KEPT = 10_000
"""Children that outlive their parents and are looked at once; beyond that, once more."""


class Orphans:
    """Tells them from those that may go on, and remembers the latter."""

    def __init__(self, running: OpenExecutions, facts: Facts) -> None:
        self._open = running
        self._facts = facts
        self.let_be: set[int] = set()
        """Children that go on though their parent has ended."""

    async def why(self, scope: Scope, child_id: int, parent_id: int) -> str | None:
        """Say why a child goes on for nobody, its parent having ended; None if it may go on."""
        if child_id in self.let_be:
            return None
        ended = await self._facts.taking_along(scope, parent_id, child_id)
        if ended is None:
            if len(self.let_be) >= KEPT:
                self.let_be.clear()
            self.let_be.add(child_id)
            return None
        return f"its parent {parent_id} {'was cancelled' if ended == 'execution.cancelled' else 'ended as FAILED'}"

    async def why_below(self, scope: Scope, execution_id: int) -> str | None:
        """Say why an open execution goes on for nobody, whoever above it has ended; None if it may go on."""
        top = await self._open.top_of(scope, execution_id)
        if top is None or top.parent_execution_id is None:
            return None
        orphan = top.execution_id
        said = await self.why(scope, orphan, top.parent_execution_id)
        return said if said is None or orphan == execution_id else f"of {orphan} above it {said}"
