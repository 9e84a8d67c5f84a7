"""Projections in PostgreSQL as one transaction sees them: a query goes in, rows come out in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from noetl.kernel.ledger.postgres.database import Connection, translated
from noetl.kernel.projections.stores.port import Page, StoredRow
from noetl.kernel.projections.stores.postgres import sql
from noetl.kernel.projections.stores.postgres.broken_streams import broken_in
from noetl.kernel.projections.stores.rows import check_query, from_columns
from noetl.model.broken_stream import BrokenStream
from noetl.model.mark import Mark

_PREFETCH = 1_000


class PostgresView:
    """Projections as one repeatable-read transaction sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def checkpoints(self) -> Mark:
        """Return up to which position each shard was projected."""
        with translated():
            return await checkpoints_of(self._connection)

    async def broken_streams(self) -> list[BrokenStream]:
        """Return the streams that stood still."""
        with translated():
            return await broken_in(self._connection)

    async def query(
        self, projection: str | None = None, filters: Mapping[str, Any] | None = None, page: Page | None = None
    ) -> AsyncGenerator[StoredRow, None]:
        """Give rows by projection and row id."""
        conditions = dict(check_query(projection, filters, page))
        if projection is not None:
            conditions["projection"] = projection
        clauses = [f"{name} = ${number}" for number, name in enumerate(conditions, 1)]
        values = list(conditions.values())
        if page is not None and page.after is not None:
            values.append(page.after)
            clauses.append(f"row_id > ${len(values)}")
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        limit = f"LIMIT {int(page.limit)}" if page is not None else ""
        text = f"SELECT {sql.SELECTED} FROM noetl.projection {where} ORDER BY projection, row_id {limit}"  # noqa: S608
        with translated():
            cursor = await self._connection.cursor(text, *values)
        while True:
            with translated():
                rows = await cursor.fetch(_PREFETCH)
            for row in rows:
                yield from_columns(row)
            if len(rows) < _PREFETCH:
                return


async def checkpoints_of(connection: Connection) -> Mark:
    """Read the checkpoints of all shards."""
    return Mark([row["position"] for row in await connection.fetch(sql.CHECKPOINTS)])
