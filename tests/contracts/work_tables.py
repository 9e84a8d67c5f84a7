"""Rows as they stand in PostgreSQL, for tests that look behind the product's back."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.postgres.database import Database
from noetl.model.stream import Scope
from noetl.testing.samples.executions import SCOPE


async def rows(database: Database, table: str, columns: str = "*", scope: Scope = SCOPE) -> list[tuple[Any, ...]]:
    async with database.transaction(scope) as connection:
        return [tuple(row) for row in await connection.fetch(f"SELECT {columns} FROM noetl.{table} ORDER BY 1")]
