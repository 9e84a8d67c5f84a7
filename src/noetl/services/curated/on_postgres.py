"""Groups a view's fact in PostgreSQL, in one snapshot of the ledger, with the projector's role."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import asyncpg

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.mark import Mark
from noetl.services.curated.grouping import POSTGRES, columns_of, grouped
from noetl.services.curated.redaction import Contribution
from noetl.services.curated.view import CuratedView

_HEADS: Final = "SELECT position FROM noetl.shard ORDER BY shard"


class InPostgres:
    """The engine for ledgers of moderate size; archived partitions are not read."""

    def __init__(self, database: Database, seconds: float) -> None:
        self._database = database
        self._seconds = seconds

    async def contributions(self, view: CuratedView, since: datetime) -> tuple[Mark, list[Contribution]]:
        """Return what each organization adds to each group, and the mark of the snapshot."""
        types = list(view.fact.types)
        events = f"SELECT {', '.join(columns_of(view))} FROM noetl.event WHERE event_type = ANY ($1::text[])"  # noqa: S608
        sql = f"WITH events AS ({events}) {grouped(view, POSTGRES, since)}"
        try:
            async with self._database.transaction(None, "projector") as connection:
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                await connection.execute(f"SET LOCAL statement_timeout = {int(self._seconds * 1000)}")
                heads = await connection.fetch(_HEADS)
                rows = await connection.fetch(sql, types)
        except asyncpg.QueryCanceledError:
            raise Unavailable(
                f"curated view {view.name} took longer than {self._seconds:g} seconds",
                hint="allow more with curated.timeout_seconds, or read it with the engine spark",
            ) from None
        last = len(view.keys) - sum(name in view.summed for name in view.keys) + 2
        found = [
            Contribution(row[0], row[1], tuple(row)[2:last], row["n"], tuple(map(float, tuple(row)[last + 1 :])))
            for row in rows
        ]
        return Mark([row["position"] for row in heads]), found
