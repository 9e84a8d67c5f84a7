"""Which archived months stay whatever their age, and which payloads rows still need after an archive is removed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import orjson

from noetl.kernel.ledger.archive.partition import months_before, partition_of
from noetl.kernel.ledger.archive.rows import ArchiveRow
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.model.mark import MAX_POSITION, Mark
from noetl.model.stream import Scope

_PINS: Final = """
SELECT tenant_id, organization_id, pin_id::text AS pin_id, execution_id, mark FROM noetl.pin
WHERE released_at IS NULL AND (until IS NULL OR until > clock_timestamp()) ORDER BY created_at
"""
_POLICIES: Final = "SELECT tenant_id, organization_id, policy FROM noetl.retention_policy"

Reason = Callable[[ArchiveRow, datetime], str | None]
"""Says why an archive stays at a moment, or None if it may go."""


async def held_archives(database: Database, keep_months: int | None) -> Reason:
    """Return what decides about archives: an organization's own months, and its pins."""
    async with database.transaction(None, "retention") as connection:
        pins = await connection.fetch(_PINS)
        policies = {
            Scope(row["tenant_id"], row["organization_id"]): orjson.loads(row["policy"]).get("archive_months")
            for row in await connection.fetch(_POLICIES)
        }

    def reason(row: ArchiveRow, now: datetime) -> str | None:
        months = policies.get(row.scope) or keep_months
        if months is None:
            return "archives are kept for ever"
        if row.partition.ends > months_before(now, months):
            return f"younger than {months} months"
        own = [pin for pin in pins if Scope(pin["tenant_id"], pin["organization_id"]) == row.scope]
        return next((f"pinned by {pin['pin_id'][:8]}" for pin in own if _needs(pin, row)), None)

    return reason


async def last_look(connection: Connection, row: ArchiveRow) -> str | None:
    """Say why an archive stays after all; if it goes, hold what rows need of it. Pins wait until it is decided."""
    await lock_archives(connection, row.scope, shared=False)
    for pin in await connection.fetch(_PINS):
        if _needs(pin, row):
            return f"pinned by {pin['pin_id'][:8]}"
    await hold_payloads(connection, row.partition.name)
    return None


async def lock_archives(connection: Connection, scope: Scope, *, shared: bool) -> None:
    """Take the lock between those who remove archives (exclusive) and those who look whether one is there still."""
    kind = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    name = f"noetl.archives/{scope.tenant_id}/{scope.organization_id}"
    await connection.execute(f"SELECT {kind}(hashtextextended($1, 0))", name)


def _needs(pin: Any, row: ArchiveRow) -> bool:
    """Tell whether a pin keeps an archive: it holds the execution, or says what came after the mark."""
    if pin["execution_id"] is not None:
        return partition_of(pin["execution_id"]) == row.partition
    positions = Mark.parse(pin["mark"]).positions
    return any(row.reaches(shard, last + 1, MAX_POSITION) for shard, last in enumerate(positions))


# Manifests of what is kept, code of versions that may serve, and what tasks read and printed.
_NEEDED: Final = """
    SELECT p.manifest_ref ->> 'sha256' AS sha256 FROM noetl.partition_version AS p
    LEFT JOIN noetl.trimmed_version AS t USING (tenant_id, organization_id, dataset_version, partition_key, version)
    LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
    WHERE p.manifest_ref IS NOT NULL AND t.files_removed_at IS NULL AND r.purged_at IS NULL
    UNION
    SELECT v.bundle_ref ->> 'sha256' FROM noetl.dag_version AS v WHERE v.status <> 'failed'
    UNION
    SELECT t.inputs_ref ->> 'sha256' FROM noetl.task AS t WHERE t.inputs_ref IS NOT NULL
    UNION
    SELECT t.logs_ref ->> 'sha256' FROM noetl.task AS t WHERE t.logs_ref IS NOT NULL
"""
_HOLD: Final = f"""
INSERT INTO noetl.payload_hold (tenant_id, organization_id, digest)
SELECT a.tenant_id, a.organization_id, a.digest FROM noetl.archive_payload AS a
WHERE a.partition = $1 AND NOT a.holds_events
  AND a.digest IN (SELECT decode(needed.sha256, 'hex') FROM ({_NEEDED}) AS needed) ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants
_DROP: Final = f"""
DELETE FROM noetl.payload_hold
WHERE digest NOT IN (SELECT decode(needed.sha256, 'hex') FROM ({_NEEDED}) AS needed)
"""  # noqa: S608


async def hold_payloads(connection: Connection, partition: str) -> None:
    """Hold what rows need of an archive that is about to be removed, in the transaction that removes it."""
    await connection.execute(_HOLD, partition)


async def drop_holds(database: Database, scope: Scope) -> None:
    """Let go of payloads that no row needs any more."""
    async with database.transaction(scope) as connection:
        if await connection.fetchval("SELECT EXISTS (SELECT FROM noetl.payload_hold)"):
            await connection.execute(_DROP)
