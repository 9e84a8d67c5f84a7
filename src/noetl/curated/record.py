"""The record of reads: a read goes in as an event of its own stream, and those of the past come out of the ledger.

What was read is never kept: only who read which view, up to which mark, and how many rows were given.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
import orjson

from noetl.dispatch.drafts import Drafting
from noetl.faults import reach
from noetl.ledger.database import Database
from noetl.ledger.port import Ledger
from noetl.ledger.transition import Append, Transition
from noetl.model.catalogue.queries import CuratedRead
from noetl.model.stream import Scope

_LISTED: Final = """
SELECT e.execution_id, e.meta::text AS meta, e.ingest_time
FROM (SELECT s.stream_id FROM noetl.stream AS s
      WHERE s.tenant_id = $1 AND s.organization_id = $2 AND s.stream_id > 'curated/' AND s.stream_id < 'curated0'
      ORDER BY s.stream_id DESC LIMIT $3) AS newest
JOIN noetl.event AS e ON e.stream_id = newest.stream_id AND e.stream_version = 1
 AND e.execution_id = split_part(newest.stream_id, '/', 2)::bigint
WHERE e.event_type = 'curated.read' ORDER BY e.execution_id DESC
"""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A read of the past."""

    read_id: str
    read_at: datetime
    read: CuratedRead


class ReadRecord:
    """The reads of all organizations' operators, each seen only within its own."""

    def __init__(
        self, database: Database, ledger: Ledger, mint_many: Callable[[int], list[int]], producer: str
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._drafting = Drafting(mint_many, producer)

    async def add(self, scope: Scope, read_id: int, read: CuratedRead) -> None:
        """Put a read on record; it is an execution of its own, and with this it has ended."""
        stream = scope.stream(f"curated/{read_id}")
        meta = {name: value for name, value in msgspec.structs.asdict(read).items() if value is not None}
        said = self._drafting.one(scope, stream, read_id, "curated.read", stream.stream_id, meta=meta)
        ended = self._drafting.one(
            scope, stream, read_id, "execution.completed", f"execution/{read_id}", causation_id=said.event_id
        )
        reach("curated.before_record")
        await self._ledger.transact(Transition((Append(stream, [said, ended], 0),)))
        reach("curated.after_record")

    async def listed(self, scope: Scope, limit: int = 50) -> list[Recorded]:
        """Return reads that are kept in the database, the newest first."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(_LISTED, scope.tenant_id, scope.organization_id, limit)
        return [
            Recorded(
                read_id=str(row["execution_id"]),
                read_at=row["ingest_time"],
                read=msgspec.convert(orjson.loads(row["meta"]), CuratedRead),
            )
            for row in rows
        ]
