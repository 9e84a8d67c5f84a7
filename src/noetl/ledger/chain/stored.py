"""The chain as PostgreSQL keeps it: links by shard and position, read as a role that serves all tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from noetl.ledger.chain.links import NO_LINK, Link
from noetl.ledger.database import Database
from noetl.model.stream import Scope

PAGE_LINKS: Final = 1_000
_COLUMNS: Final = ", ".join(Link.__struct_fields__)
_LINKS: Final = (
    f"SELECT {_COLUMNS} FROM noetl.ledger_link WHERE shard = $1 AND first_position >= $2 AND first_position <= $3"  # noqa: S608
    " ORDER BY first_position LIMIT $4"
)
_AT: Final = "SELECT coalesce(max(first_position), 0) FROM noetl.ledger_link WHERE shard = $1 AND first_position <= $2"
_BEFORE: Final = (
    "SELECT link FROM noetl.ledger_link WHERE shard = $1 AND first_position < $2 ORDER BY first_position DESC LIMIT 1"
)
# What a digest column says is derived from the reference beside it, and an event as it is read has the reference alone.
_ASTRAY: Final = """
SELECT event_id, position FROM noetl.event WHERE shard = $1
  AND (payload_sha256 IS DISTINCT FROM payload_ref ->> 'sha256' OR fields_sha256 IS DISTINCT FROM fields_ref ->> 'sha256')
  AND ($2::text IS NULL OR (tenant_id, organization_id) = ($2, $3)) ORDER BY position LIMIT 10
"""
# Of all tenants, and nothing but positions.
_STANDING: Final = """
SELECT min(position), max(position) FROM (
    SELECT position, position - row_number() OVER (ORDER BY position) AS run
    FROM noetl.event WHERE shard = $1 AND position <= $2
) AS each GROUP BY run ORDER BY 1
"""
_LAST: Final = (1 << 63) - 1


class StoredLinks:
    """See `LinkReader` for the promises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def links(
        self, shard: int, from_position: int = 1, to_position: int | None = None
    ) -> AsyncIterator[list[Link]]:
        """Give the links of a shard that hold positions within the bounds, in pages."""
        last = _LAST if to_position is None else to_position
        async with self._database.transaction(None, "projector") as connection:
            first = await connection.fetchval(_AT, shard, from_position)
        while True:
            async with self._database.transaction(None, "projector") as connection:
                rows = await connection.fetch(_LINKS, shard, first, last, PAGE_LINKS)
            if rows:
                yield [Link(*row) for row in rows]
            if len(rows) < PAGE_LINKS:
                return
            first = rows[-1]["first_position"] + 1

    async def before(self, shard: int, position: int) -> bytes:
        """Return the link that the one at a position follows."""
        async with self._database.transaction(None, "projector") as connection:
            return await connection.fetchval(_BEFORE, shard, position) or NO_LINK

    async def astray(self, shard: int, scope: Scope | None) -> list[tuple[int, int]]:
        """Return events, as id and position, whose digest columns say another digest than their references."""
        names = (None, None) if scope is None else (scope.tenant_id, scope.organization_id)
        async with self._database.transaction(None, "projector") as connection:
            rows = await connection.fetch(_ASTRAY, shard, *names)
        return [(row["event_id"], row["position"]) for row in rows]

    async def standing(self, shard: int, to_position: int) -> list[tuple[int, int]]:
        """Return which positions have a live event, of whatever organization, as runs without gaps."""
        async with self._database.transaction(None, "projector") as connection:
            return [(row[0], row[1]) for row in await connection.fetch(_STANDING, shard, to_position)]

    async def chained_from(self) -> list[int]:
        """Return for each shard the first position that has a link."""
        async with self._database.transaction(None, "projector") as connection:
            rows = await connection.fetch("SELECT chained_from FROM noetl.shard ORDER BY shard")
        return [row["chained_from"] for row in rows]
