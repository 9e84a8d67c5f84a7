"""Versions of playbooks in PostgreSQL: `noetl.catalog` holds their sources, to which their events only refer."""

from __future__ import annotations

import asyncpg

from noetl.engine.catalog.playbooks import Entry
from noetl.errors import VersionConflict
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.decisions import RowDecisions
from noetl.model.event import Appended, Draft
from noetl.model.stream import Scope, Stream

_COLUMNS = "catalog_id, path, version, kind, digest, content, registered_at, removed"


class PostgresEntries:
    """See `CatalogEntries` for the promises."""

    def __init__(self, database: Database, ledger: RowDecisions) -> None:
        self._database = database
        self._ledger = ledger

    async def by_id(self, scope: Scope, catalog_id: str) -> Entry | None:
        """Return a version by its catalog id."""
        async with self._database.transaction(scope) as connection:
            row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM noetl.catalog WHERE catalog_id = $1", catalog_id)  # noqa: S608
        return None if row is None else Entry(**row)

    async def versions(self, scope: Scope, path: str) -> list[Entry]:
        """Return all versions of a path."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                f"SELECT {_COLUMNS} FROM noetl.catalog WHERE path = $1 ORDER BY version",  # noqa: S608
                path,
            )
        return [Entry(**row) for row in rows]

    async def newest(self, scope: Scope, prefix: str, after: str, limit: int) -> list[Entry]:
        """Return the newest version in use of each path."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                f"SELECT DISTINCT ON (path) {_COLUMNS} FROM noetl.catalog"  # noqa: S608
                " WHERE NOT removed AND starts_with(path, $1) AND path > $2 ORDER BY path, version DESC LIMIT $3",
                prefix,
                after,
                limit,
            )
        return [Entry(**row) for row in rows]

    async def stream_version(self, stream: Stream) -> int:
        """Return the version of a path's stream."""
        async with self._database.transaction(stream.scope) as connection:
            found: int | None = await connection.fetchval(
                "SELECT version FROM noetl.stream WHERE stream_id = $1", stream.stream_id
            )
        return found or 0

    async def add(self, stream: Stream, entry: Entry, draft: Draft, expected_version: int) -> None:
        """Keep a new version, its row and its event in one transaction."""
        try:
            async with self._ledger.decision(stream.scope) as decision:
                await decision.connection.execute(
                    f"INSERT INTO noetl.catalog (tenant_id, organization_id, {_COLUMNS})"  # noqa: S608
                    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, false)",
                    stream.tenant_id,
                    stream.organization_id,
                    entry.catalog_id,
                    entry.path,
                    entry.version,
                    entry.kind,
                    entry.digest,
                    entry.content,
                    entry.registered_at,
                )
                await decision.append(stream, [draft], expected_version)
        except asyncpg.UniqueViolationError as clash:
            raise VersionConflict(f"version {entry.version} of {entry.path} was registered meanwhile") from clash

    async def set_removed(self, stream: Stream, entry: Entry, draft: Draft) -> Appended:
        """Keep whether a version is out of use, its row and its event in one transaction."""
        async with self._ledger.decision(stream.scope) as decision:
            await decision.connection.execute(
                "UPDATE noetl.catalog SET removed = $2 WHERE catalog_id = $1", entry.catalog_id, entry.removed
            )
            return await decision.append(stream, [draft])
