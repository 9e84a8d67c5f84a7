"""Whether an execution is there: asked of the ledger once, of its archives if need be, and remembered."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from noetl.errors import NotFound
from noetl.ledger.database import Database
from noetl.ledger.history import History
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope, execution_stream

_KEPT: Final = 10_000
# What users say about an execution does not make it one.
_KNOWN: Final = """
SELECT EXISTS (SELECT FROM noetl.known_event WHERE execution_id = $1 AND NOT starts_with(event_type, 'business.'))
"""


class KnownExecutions:
    """Executions that were found to be there; none ever ceases to have been."""

    def __init__(self, database: Database, history: History) -> None:
        self._database = database
        self._history = history
        self._found: OrderedDict[tuple[Scope, int], None] = OrderedDict()

    async def check(self, scope: Scope, execution_id: int) -> None:
        """Raise `NotFound` unless the organization has the execution."""
        key = (scope, execution_id)
        if key in self._found or execution_id == organization_root_id(scope.tenant_id, scope.organization_id):
            return
        if not await self._exists(scope, execution_id):
            raise NotFound(
                f"there is no execution {execution_id}", hint="leave execution_id out for a fact that belongs to none"
            )
        self._found[key] = None
        while len(self._found) > _KEPT:
            self._found.popitem(last=False)

    async def _exists(self, scope: Scope, execution_id: int) -> bool:
        async with self._database.transaction(scope) as connection:
            if await connection.fetchval(_KNOWN, execution_id):
                return True
        async for _ in self._history.read(execution_stream(scope, execution_id)):
            return True
        return False
