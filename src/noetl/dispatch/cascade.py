"""Stops executions with what they started: an execution goes in, all below it that runs ends, those that were stopped come out.

Parents end before their children, so that no parent takes a child's end for a failure it may handle. Whoever is ended
starts nothing more, so what is below it grows no longer, however much was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from noetl.dispatch.executions import Executions
from noetl.ledger.database import Database
from noetl.model.stream import Scope
from noetl.plan.state import State
from noetl.plan.trigger import Cancelled

_BELOW = """
WITH RECURSIVE below AS (
    SELECT h.execution_id, h.parent_execution_id, 1 AS level FROM noetl.execution_head AS h
    WHERE h.parent_execution_id = ANY ($1::bigint[])
    UNION ALL
    SELECT h.execution_id, h.parent_execution_id, below.level + 1
    FROM below JOIN noetl.execution_head AS h ON h.parent_execution_id = below.execution_id
)
SELECT execution_id, parent_execution_id, level FROM below ORDER BY level, execution_id
"""
# Those that outlived their parents: who started these is known from what they were requested with.
_BELOW_ENDED = """
WITH RECURSIVE up AS (
    SELECT h.execution_id, h.parent_execution_id, h.parent_execution_id AS above FROM noetl.execution_head AS h
    WHERE h.parent_execution_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM noetl.execution_head AS p WHERE p.execution_id = h.parent_execution_id)
    UNION
    SELECT up.execution_id, up.parent_execution_id, e.parent_execution_id
    FROM up JOIN noetl.known_event AS e ON e.execution_id = up.above AND e.event_type = 'execution.requested'
    WHERE up.above <> $1 AND e.parent_execution_id IS NOT NULL
)
SELECT execution_id, parent_execution_id, 1 AS level FROM up WHERE above = $1 ORDER BY execution_id
"""
_WAITED = """
SELECT h.execution_id FROM noetl.execution_head AS h JOIN noetl.known_event AS e USING (execution_id)
WHERE h.parent_execution_id = $1 AND e.event_type = 'execution.requested' AND e.meta ->> 'detached' IS NULL
"""
AT_ONCE = 16
"""Executions that are cancelled at a time."""


class Cascade:
    """Cancels executions of all organizations; `stopped` is called when some were."""

    def __init__(self, database: Database, executions: Executions, stopped: Callable[[], None]) -> None:
        self._database = database
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
        for row in await self._rows(scope, _WAITED, parent.execution_id):
            await self.cancel(scope, row["execution_id"], wish)

    async def _below(
        self, scope: Scope, top: int, wish: Cancelled, cancelled: set[int], *, below_ended: bool
    ) -> list[int]:
        stopped: list[int] = []
        problems: list[BaseException] = []
        seen, above = {top}, [top]
        while True:
            found = _unseen(await self._rows(scope, _BELOW, above), seen)
            if not found and below_ended:
                found = _unseen(await self._rows(scope, _BELOW_ENDED, top), seen)
            if not found:
                break
            for _, level in groupby(found, key=lambda row: row["level"]):
                wishes = {
                    row["execution_id"]: _because(wish, row["parent_execution_id"], top, cancelled) for row in level
                }
                for execution_id, answer in (await self._all_cancelled(scope, wishes)).items():
                    if isinstance(answer, BaseException):
                        problems.append(answer)
                    elif answer:
                        stopped.append(execution_id)
                        cancelled.add(execution_id)
            # What these started while they were being stopped is below them.
            above = [row["execution_id"] for row in found]
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
        if (await self._executions.state(scope, execution_id)).ended:
            return False
        decided = await self._executions.trigger(scope, execution_id, wish)
        if decided.facts:
            self._stopped()
        return bool(decided.facts)

    async def _rows(self, scope: Scope, query: str, *values: Any) -> list[Any]:
        async with self._database.transaction(scope) as connection:
            return list(await connection.fetch(query, *values))


def _unseen(rows: Iterable[Any], seen: set[int]) -> list[Any]:
    """Return the rows of executions that were not met yet, which are then."""
    found = [row for row in rows if row["execution_id"] not in seen]
    seen.update(row["execution_id"] for row in found)
    return found


def _because(wish: Cancelled, parent_id: int, top: int, cancelled: set[int]) -> Cancelled:
    said = f"its parent {parent_id} was" if parent_id in cancelled else f"what execution {top} started was"
    return Cancelled(reason=f"{said} cancelled: {wish.reason}", by=wish.by)
