"""What the ledger knows about payloads: who refers to one, what a locator stands for, and which tenants were erased.

Garbage collection counts references from events, snapshots and archives of one organization. It condemns a payload
under a lock that every append with payloads respects.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import msgspec

from noetl.errors import Conflict, InputError, NotFound, Unavailable
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope

LOCK_SECONDS = 2.0
"""How long to wait for appends under way at a time: whoever waits for the lock holds up the appends behind it."""

_LOCK_TRIES = 15
_PAUSE_SECONDS = 0.2
_NAMED = 20

_COUNT = """
SELECT sha256, sum(n)::bigint FROM (
    SELECT payload_sha256 AS sha256, count(*) AS n FROM noetl.known_event WHERE payload_sha256 = ANY ($1) GROUP BY 1
    UNION ALL
    SELECT fields_sha256, count(*) FROM noetl.known_event WHERE fields_sha256 = ANY ($1) GROUP BY 1
    UNION ALL
    SELECT payload_sha256, count(*) FROM noetl.snapshot WHERE payload_sha256 = ANY ($1) GROUP BY 1
    UNION ALL
    SELECT manifest_sha256, count(*) FROM noetl.event_archive
    WHERE manifest_sha256 = ANY ($1) AND removed_at IS NULL GROUP BY 1
    UNION ALL
    SELECT encode(digest, 'hex'), count(*) FROM noetl.archive_payload
    WHERE digest = ANY (ARRAY(SELECT decode(wanted, 'hex') FROM unnest($1::text[]) AS wanted)) GROUP BY 1
    UNION ALL
    SELECT encode(digest, 'hex'), count(*) FROM noetl.payload_hold
    WHERE digest = ANY (ARRAY(SELECT decode(wanted, 'hex') FROM unnest($1::text[]) AS wanted)) GROUP BY 1
) AS referring GROUP BY sha256
"""

_EVENTS = """
SELECT event_id, event_type, count(*) OVER () AS all_events FROM noetl.known_event
WHERE payload_sha256 = $1 OR fields_sha256 = $1 ORDER BY event_id LIMIT $2
"""

_OTHERS = """
SELECT format('snapshot of %s %s at %s', aggregate_type, aggregate_id, version) FROM noetl.snapshot
WHERE payload_sha256 = $1
UNION ALL
SELECT format('archive of %s (its manifest)', partition) FROM noetl.event_archive
WHERE manifest_sha256 = $1 AND removed_at IS NULL
UNION ALL
SELECT format('archive of %s (%s)', partition,
              CASE WHEN holds_events THEN 'its events' ELSE 'a payload of its events' END)
FROM noetl.archive_payload WHERE digest = decode($1, 'hex')
UNION ALL
SELECT 'a row of a pipeline, whose events are gone' FROM noetl.payload_hold WHERE digest = decode($1, 'hex')
"""


class PostgresReferences:
    """Answers from the rows of one database, always within one organization."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self, scope: Scope, sha256s: Sequence[str]) -> dict[str, int]:
        """Return, for each digest, how many retained events, snapshots and archives refer to it."""
        async with self._database.transaction(scope) as connection:
            return await _count(connection, sha256s)

    async def explain(self, scope: Scope, sha256: str) -> list[str]:
        """Name what refers to a digest; of many events the first ones and how many more there are."""
        async with self._database.transaction(scope) as connection:
            events = await connection.fetch(_EVENTS, sha256, _NAMED)
            others = await connection.fetch(_OTHERS, sha256)
        named = [f"event {row['event_id']} ({row['event_type']})" for row in events]
        if events and events[0]["all_events"] > len(events):
            named.append(f"{events[0]['all_events'] - len(events)} more events")
        return [*named, *(row[0] for row in others)]

    @asynccontextmanager
    async def exclusively(self, scope: Scope) -> AsyncIterator[None]:
        """Hold the right to collect in a scope, as long as this process lives."""
        connection = await self._database.connect()
        try:
            name = f"noetl.collect/{scope.tenant_id}/{scope.organization_id}"
            if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name):
                raise Conflict(f"another collector works on {scope.tenant_id}/{scope.organization_id}")
            yield
        finally:
            await connection.close(timeout=2)

    async def condemn(self, scope: Scope, sha256: str) -> bool:
        """Condemn a payload; False, and nothing done, if something refers to it by now."""
        for _ in range(_LOCK_TRIES):
            try:
                async with self._database.transaction(scope) as connection:
                    await connection.execute(
                        "SELECT set_config('lock_timeout', $1, true)", f"{int(LOCK_SECONDS * 1000)}ms"
                    )
                    await lock_payloads(connection, scope, shared=False)
                    if (await _count(connection, [sha256]))[sha256]:
                        return False
                    await connection.execute(
                        "INSERT INTO noetl.payload_tombstone (tenant_id, organization_id, sha256) VALUES ($1, $2, $3)"
                        " ON CONFLICT (tenant_id, organization_id, sha256)"
                        " DO UPDATE SET condemned_at = excluded.condemned_at, removed_at = NULL",
                        scope.tenant_id,
                        scope.organization_id,
                        sha256,
                    )
                    return True
            except asyncpg.LockNotAvailableError:
                await asyncio.sleep(_PAUSE_SECONDS)
        raise Unavailable(f"appends to {scope.tenant_id}/{scope.organization_id} leave no time to condemn {sha256}")

    async def removed(self, scope: Scope, sha256: str) -> None:
        """Record that the object of a condemned payload is deleted."""
        async with self._database.transaction(scope) as connection:
            await connection.execute(
                "UPDATE noetl.payload_tombstone SET removed_at = clock_timestamp() WHERE sha256 = $1", sha256
            )

    async def spare(self, scope: Scope, sha256: str) -> None:
        """Lift the mark, so that events may refer to the payload again."""
        async with self._database.transaction(scope) as connection:
            await connection.execute("DELETE FROM noetl.payload_tombstone WHERE sha256 = $1", sha256)

    async def condemned(self, scope: Scope) -> list[str]:
        """Return the digests that are condemned and not yet recorded as removed."""
        async with self._database.transaction(scope) as connection:
            rows = await connection.fetch(
                "SELECT sha256 FROM noetl.payload_tombstone WHERE removed_at IS NULL ORDER BY condemned_at, sha256"
            )
        return [row["sha256"] for row in rows]


async def lock_payloads(connection: Connection, scope: Scope, *, shared: bool) -> None:
    """Take the lock between collectors (exclusive) and those who are about to refer to payloads (shared)."""
    kind = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    await connection.execute(
        f"SELECT {kind}(noetl.payload_lock($1, $2))",
        scope.tenant_id,
        scope.organization_id,
    )


async def _count(connection: Connection, sha256s: Sequence[str]) -> dict[str, int]:
    found = dict.fromkeys(sha256s, 0)
    found.update((row[0], row[1]) for row in await connection.fetch(_COUNT, list(sha256s)))
    return found


_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_REFERRING: Final = """
SELECT payload_ref AS ref FROM noetl.known_event WHERE payload_sha256 = $1
UNION ALL SELECT fields_ref FROM noetl.known_event WHERE fields_sha256 = $1 LIMIT 1
"""


def digest_at(scope: Scope, locator: str) -> str:
    """Return the digest in the locator of a payload of an organization, or raise InputError."""
    sha256 = locator.rpartition("/")[2]
    if not _DIGEST.fullmatch(sha256) or locator != payload_uri(scope.tenant_id, scope.organization_id, sha256):
        raise InputError(
            f"{locator[:200]!r} is not the locator of a payload of this organization",
            hint=payload_uri(scope.tenant_id, scope.organization_id, "<digest>"),
        )
    return sha256


async def payload_at(database: Database, scope: Scope, locator: str) -> PayloadRef:
    """Return the reference a locator stands for; NotFound where no event of the organization refers to the payload."""
    sha256 = digest_at(scope, locator)
    async with database.transaction(scope) as connection:
        found = await connection.fetchval(_REFERRING, sha256)
    if found is None:
        raise NotFound(f"no event refers to a payload {sha256}")
    return msgspec.json.decode(found, type=PayloadRef)


# The stream outlives the month of its event.
_RECORDED: Final = """
SELECT EXISTS (SELECT FROM noetl.stream WHERE tenant_id = $1 AND stream_id = 'erasure/' || $1 AND version > 0)
"""


class RecordedErasures:
    """Asks the ledger's database, and remembers what will never change again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._erased: set[str] = set()

    async def __call__(self, tenant_id: str) -> bool:
        """Tell whether the payloads of a tenant were erased on purpose."""
        if tenant_id not in self._erased:
            async with self._database.transaction(None, "projector") as connection:
                if await connection.fetchval(_RECORDED, tenant_id):
                    self._erased.add(tenant_id)
        return tenant_id in self._erased
