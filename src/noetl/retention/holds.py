"""Payloads that rows still need after the archive of the events that brought them is removed: held, and let go later."""

from __future__ import annotations

from typing import Final

from noetl.ledger.database import Connection, Database
from noetl.model.stream import Scope

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
