"""Erases a tenant: destroys its key, so that its payloads can nowhere be read again, and records that as an event.

Rows that were folded from fields among these payloads are folded anew, to the values that stand for what was erased.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from noetl.errors import ConfigError, Erased
from noetl.kernel.payloads.keys import FileTenantKeys
from noetl.model.broken_stream import BrokenStream
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Appended, Draft
from noetl.model.ids import organization_root_id
from noetl.runtime.locality import process_locator
from noetl.runtime.wiring import Runtime

# What lies in archives is as unreadable as the payloads, so only streams that are here from their first event can be folded.
_STREAMS: Final = """
WITH said AS (
    SELECT DISTINCT organization_id, shard,
           CASE WHEN stream_id ~ '^execution/[0-9]+(/|$)' THEN 'execution/' || split_part(stream_id, '/', 2) ELSE stream_id END
               AS stream_id
    FROM noetl.event WHERE tenant_id = $1 AND fields_sha256 IS NOT NULL
)
SELECT said.organization_id, said.shard, said.stream_id,
       array_agg(e.position ORDER BY e.position) AS positions, min(e.event_id) AS event_id
FROM said JOIN noetl.event AS e ON e.tenant_id = $1 AND e.organization_id = said.organization_id AND e.shard = said.shard
    AND (e.stream_id = said.stream_id
         OR starts_with(said.stream_id, 'execution/') AND starts_with(e.stream_id, said.stream_id || '/'))
GROUP BY 1, 2, 3
HAVING bool_or(e.stream_id = said.stream_id AND e.stream_version = 1)
"""


async def fold_anew(runtime: Runtime) -> int:
    """Let every stream of an erased tenant whose fields lay among its payloads be folded anew; return how many there are."""
    tenant_id = runtime.scope.tenant_id
    async with runtime.database.transaction(None, "projector") as connection:
        rows = await connection.fetch(_STREAMS, tenant_id)
    for row in rows:
        broken = BrokenStream(
            tenant_id=tenant_id,
            organization_id=row["organization_id"],
            stream_id=row["stream_id"],
            shard=row["shard"],
            position=row["positions"][0],
            event_id=row["event_id"],
            sha256="",
            code=Erased.code,
            message="its fields were erased, and its rows are about to be folded anew",
        )
        for line in runtime.projections.lines:
            await line.store.fold_anew(broken, row["positions"])
    return len(rows)


async def erase_tenant(runtime: Runtime) -> Appended:
    """Destroy the key of the runtime's tenant and record it; doing it again changes nothing.

    Events, digests and checksums stay and still verify; what the payloads said is gone, in backups and copies too.
    """
    if not runtime.settings.payload_store.encryption_at_rest:
        raise ConfigError(
            "payloads are not encrypted, so there is no key whose destruction would erase them",
            hint="set payload_store.encryption_at_rest: true before the first payload is stored",
        )
    scope = runtime.scope
    FileTenantKeys(runtime.settings.key_directory).destroy(scope.tenant_id)
    kind = BY_NAME["tenant.erased"]
    stream = scope.stream(f"erasure/{scope.tenant_id}")
    draft = Draft(
        event_id=runtime.ids.mint(),
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        execution_id=organization_root_id(scope.tenant_id, scope.organization_id),
        stream_id=stream.stream_id,
        aggregate_type=kind.aggregate,
        aggregate_id=scope.tenant_id,
        event_type=kind.name,
        schema_name=kind.schema_name,
        schema_version=kind.version,
        event_time=datetime.now(UTC),
        producer=process_locator(runtime.settings.runtime, "cli"),
        idempotency_key=f"tenant.erased/{scope.tenant_id}",
    )
    return await runtime.ledger.append(stream, [draft])
