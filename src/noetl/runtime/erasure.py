"""Erases a tenant: destroys its key, so that its payloads can nowhere be read again, and records that as an event."""

from __future__ import annotations

from datetime import UTC, datetime

from noetl.errors import ConfigError
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Appended, Draft
from noetl.model.ids import organization_root_id
from noetl.payloads.keys import FileTenantKeys
from noetl.runtime.locality import process_locator
from noetl.runtime.wiring import Runtime


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
