"""What the contract of transitions must see of an adapter beyond its port: rows, all that is stored, other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.port import Ledger
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.projections.folds.fold import moment
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.open_work import open_work_differences
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.engines.memory_parity import memory_differences
from noetl.testing.samples.executions import NEIGHBOUR, SCOPE

WORK_TABLES: Final = ("execution_head", "command", "stage", "frame")
_ALL_STORED: Final = (*WORK_TABLES, "event", "stream", "idempotency_key")
_JSON: Final = frozenset({"ctx", "frame_policy", "input_ref", "checkpoint", "near"})


class WorkHarness(Protocol):
    """One adapter under test."""

    async def rows(self, table: str, *columns: str, scope: Scope = SCOPE) -> list[tuple[Any, ...]]:
        """Return these columns of all rows of a table, sorted, their values written as folds write them."""
        ...

    async def stored(self) -> Any:
        """Return all that is kept of the work of an organization: rows, events, versions and keys, to be compared."""
        ...

    def one_statement(self) -> AbstractAsyncContextManager[None]:
        """Check that what is sent in the block is written together, where the adapter writes several at once."""
        ...

    def other_process(self) -> AbstractAsyncContextManager[Ledger]:
        """Give the same ledger as another process has it."""
        ...

    async def differences(self, execution_id: int | None = None, scope: Scope = SCOPE) -> list[Any]:
        """Compare rows of open work with what folding the ledger gives; nothing when they are the same."""
        ...


class PostgresHarness:
    """See `WorkHarness` for the promises."""

    def __init__(self, database: Database, owner_url: str) -> None:
        self._database = database
        self._owner_url = owner_url

    async def rows(self, table: str, *columns: str, scope: Scope = SCOPE) -> list[tuple[Any, ...]]:
        """Read the table as its organization."""
        async with self._database.transaction(scope) as connection:
            found = await connection.fetch(f"SELECT {', '.join(columns) or '*'} FROM noetl.{table} ORDER BY 1")  # noqa: S608
        return sorted(tuple(_value(name, value) for name, value in row.items()) for row in found)

    async def stored(self) -> Any:
        """Read all tables an append writes to, but the heads of shards."""
        async with self._database.transaction(SCOPE) as connection:
            return [
                [tuple(map(str, row)) for row in await connection.fetch(f"SELECT * FROM noetl.{table} ORDER BY 1")]  # noqa: S608
                for table in _ALL_STORED
            ]

    @asynccontextmanager
    async def one_statement(self) -> AsyncIterator[None]:
        """Count transactions by the rows they left."""
        before = await self._statements()
        yield
        assert await self._statements() == before + 1

    async def _statements(self) -> int:
        async with self._database.transaction(SCOPE) as connection:
            return int(await connection.fetchval("SELECT count(DISTINCT xmin::text) FROM noetl.event"))

    @asynccontextmanager
    async def other_process(self) -> AsyncIterator[Ledger]:
        """Open connections and a committer of its own."""
        database = Database(self._owner_url, as_roles=True)
        ledger = PostgresLedger(database)
        yield ledger
        await ledger.close()
        await database.close()

    async def differences(self, execution_id: int | None = None, scope: Scope = SCOPE) -> list[Any]:
        """Ask the verifier of open work."""
        return list(await open_work_differences(self._database, scope, execution_id, Upcasters()))


class MemoryHarness:
    """See `WorkHarness` for the promises."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

    async def rows(self, table: str, *columns: str, scope: Scope = SCOPE) -> list[tuple[Any, ...]]:
        """Read what the transitions have left."""
        found = self._ledger.work.rows(scope, table).values()
        return sorted(tuple(row[name] for name in (columns or sorted(row))) for row in found)

    async def stored(self) -> Any:
        """Take the rows of both organizations, and the ledger itself."""
        rows = {
            (scope, table): orjson.dumps(self._ledger.work.rows(scope, table))
            for scope in (SCOPE, NEIGHBOUR)
            for table in WORK_TABLES
        }
        return rows, await everything(self._ledger), dict(self._ledger._versions), dict(self._ledger._keys)

    @asynccontextmanager
    async def one_statement(self) -> AsyncIterator[None]:
        """Check nothing: transitions are decided one by one."""
        yield

    @asynccontextmanager
    async def other_process(self) -> AsyncIterator[Ledger]:
        """Give the ledger itself: it has only one process."""
        yield self._ledger

    async def differences(self, execution_id: int | None = None, scope: Scope = SCOPE) -> list[Any]:
        """Fold the ledger anew."""
        found = await memory_differences(self._ledger, scope)
        return [one for one in found if execution_id is None or one.execution_id == execution_id]


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, UUID) or (isinstance(value, int) and name.endswith("_id")):
        return str(value)
    return orjson.loads(value) if name in _JSON and value is not None else value
