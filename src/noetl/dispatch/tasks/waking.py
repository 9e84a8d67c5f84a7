"""Tasks that became available are told to those who may run them; the outbox calls this for its wake-ups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from noetl.dispatch.tasks.outbox import OutboxRow
from noetl.dispatch.tasks.wakeups.port import Wakeup, Wakeups
from noetl.leases.kinds import TASK
from noetl.ledger.database import Database
from noetl.model.stream import Scope

_WAITING: Final = f"""
SELECT t.task_id::text AS task_id, t.runtime FROM noetl.task AS t
WHERE t.task_id = ANY ($1::uuid[]) AND {TASK.waiting("t")}
"""  # noqa: S608


class Waking:
    """Delivers wake-ups, all of a batch together: what somebody took meanwhile needs none."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    async def __call__(self, scope: Scope, rows: Sequence[OutboxRow]) -> Mapping[str, Exception]:
        """Wake whoever runs the tasks of these rows."""
        async with self._database.transaction(scope) as connection:
            waiting = await connection.fetch(_WAITING, [row.payload["task_id"] for row in rows])
        if waiting:
            await self._wakeups.wake(scope, [Wakeup(row["task_id"], row["runtime"]) for row in waiting])
        return {}
