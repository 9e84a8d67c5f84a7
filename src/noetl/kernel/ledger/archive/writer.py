"""Archives a partition: its events go in, objects, a manifest and a `partition.archived` event per organization come out.

Nothing is deleted here. Whatever is repeated after a crash repeats harmlessly: objects are addressed by their content,
and the event, the archive's row and its list of payloads are one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime

import asyncpg
import msgspec

from noetl.errors import PayloadCollected
from noetl.faults import reach
from noetl.kernel.ledger.archive.manifest import (
    EVENTS_MEDIA_TYPE,
    MANIFEST_MEDIA_TYPE,
    ArchivedObject,
    Manifest,
    Payloads,
)
from noetl.kernel.ledger.archive.partition import Partition, partition_named
from noetl.kernel.ledger.archive.rows import archive_rows, archived_draft, write_row
from noetl.kernel.ledger.archive.spool import OBJECT_EVENTS, Filled, Spools, pages_of
from noetl.kernel.ledger.payload_references import lock_payloads
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.postgres.decisions import RowDecisions
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_HELD = """
SELECT tenant_id, organization_id, count(*) AS events, count(DISTINCT execution_id) AS executions,
       min(execution_id) AS first, max(execution_id) AS last
FROM noetl.event WHERE execution_id >= $1 AND execution_id < $2 GROUP BY 1, 2 ORDER BY 1, 2
"""

_LIST_PAYLOADS = """
INSERT INTO noetl.archive_payload (tenant_id, organization_id, digest, partition, holds_events)
SELECT $1, $2, decode(needed.sha256, 'hex'), $3, bool_or(needed.holds_events) FROM (
    SELECT payload_sha256 AS sha256, false AS holds_events FROM noetl.event
    WHERE execution_id >= $4 AND execution_id < $5 AND payload_sha256 IS NOT NULL
    UNION ALL
    SELECT fields_sha256, false FROM noetl.event
    WHERE execution_id >= $4 AND execution_id < $5 AND fields_sha256 IS NOT NULL
    UNION ALL
    SELECT sha256, true FROM unnest($6::text[]) AS sha256
) AS needed GROUP BY needed.sha256
"""


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """One organization's part of an archived partition; `fresh` if this call archived it."""

    scope: Scope
    partition: str
    events: int
    executions: int
    manifest_ref: PayloadRef
    fresh: bool


async def archive_partition(
    database: Database,
    ledger: RowDecisions,
    payloads: Payloads,
    partition: str,
    *,
    mint: Callable[[], int],
    now: datetime,
    again: bool = False,
    object_events: int = OBJECT_EVENTS,
) -> list[Archived]:
    """Archive what every organization has in a partition and is not archived yet, or all of it `again`."""
    month = partition_named(partition)
    async with database.transaction(None, "retention") as connection:
        held = await connection.fetch(_HELD, month.first_id, month.end_id)
        known = {row.scope: row for row in await archive_rows(connection, partition)}
    done: list[Archived] = []
    missing: dict[Scope, asyncpg.Record] = {}
    for found in held:
        scope = Scope(found["tenant_id"], found["organization_id"])
        row = known.get(scope)
        # Events are never changed, so as many events as were archived are the events that were archived.
        if row is not None and row.events == found["events"] and not row.removed and not again:
            done.append(_archived(scope, partition, row.events, row.executions, row.manifest_ref, fresh=False))
        else:
            missing[scope] = found
    if missing:
        objects = await _store_objects(database, payloads, month, set(missing), object_events)
        for scope, found in missing.items():
            manifest = _manifest(month, found, objects[scope])
            done.append(await _record(database, ledger, payloads, scope, manifest, mint(), now))
    return sorted(done, key=lambda one: (one.scope.tenant_id, one.scope.organization_id))


async def _store_objects(
    database: Database, payloads: Payloads, month: Partition, wanted: set[Scope], object_events: int
) -> dict[Scope, list[ArchivedObject]]:
    """Read the partition once, shard by shard, and store what each organization has in it."""
    stored: dict[Scope, list[ArchivedObject]] = {scope: [] for scope in wanted}
    with Spools(object_events) as spools:
        async for page in pages_of(database, month):
            async for filled in spools.add(page, wanted):
                stored[filled.scope].append(await _store(database, payloads, filled))
    return stored


async def _store(database: Database, payloads: Payloads, filled: Filled) -> ArchivedObject:
    return ArchivedObject(
        shard=filled.shard,
        first_position=filled.first_position,
        last_position=filled.last_position,
        count=filled.count,
        first_execution_id=str(filled.first_execution_id),
        last_execution_id=str(filled.last_execution_id),
        ref=await _keep(database, payloads, filled.scope, filled.read, EVENTS_MEDIA_TYPE, filled.count),
    )


async def _keep(
    database: Database,
    payloads: Payloads,
    scope: Scope,
    data: Callable[[], bytes | AsyncIterator[bytes]],
    media_type: str,
    rows: int | None = None,
) -> PayloadRef:
    """Store bytes that an earlier try may have stored already, and that may have been collected since."""
    ref = await payloads.store(scope, data(), media_type, rows=rows)
    async with database.transaction(scope) as connection:
        grave = await connection.fetchrow(
            "SELECT removed_at FROM noetl.payload_tombstone WHERE sha256 = $1", ref.sha256
        )
    if grave is None:
        return ref
    if grave["removed_at"] is None:
        # What is stored before the deletion would fall to it.
        raise PayloadCollected(f"the object {ref.sha256} is being collected; archive again later", sha256=ref.sha256)
    ref = await payloads.store(scope, data(), media_type, rows=rows)
    async with database.transaction(scope) as connection:
        await connection.execute("DELETE FROM noetl.payload_tombstone WHERE sha256 = $1", ref.sha256)
    return ref


def _manifest(month: Partition, found: asyncpg.Record, objects: list[ArchivedObject]) -> Manifest:
    bounds: dict[str, tuple[int, int]] = {}
    for one in objects:
        first, _ = bounds.get(str(one.shard), (one.first_position, 0))
        bounds[str(one.shard)] = (first, one.last_position)
    return Manifest(
        partition=month.name,
        events=sum(one.count for one in objects),
        executions=found["executions"],
        first_execution_id=str(found["first"]),
        last_execution_id=str(found["last"]),
        bounds=bounds,
        objects=objects,
    )


async def _record(
    database: Database,
    ledger: RowDecisions,
    payloads: Payloads,
    scope: Scope,
    manifest: Manifest,
    event_id: int,
    now: datetime,
) -> Archived:
    ref = await _keep(database, payloads, scope, manifest.encoded, MANIFEST_MEDIA_TYPE)
    reach("archive.after_objects")
    draft = archived_draft(scope, manifest, ref, event_id, now)
    objects = [one.ref.sha256 for one in manifest.objects]
    async with ledger.decision(scope) as decision:
        await _guard(decision.connection, scope, objects)
        await write_row(decision.connection, scope, draft)
        await _list_payloads(decision.connection, scope, partition_named(manifest.partition), objects)
        await decision.append(draft.stream, [draft])
    reach("archive.after_manifest")
    return _archived(scope, manifest.partition, manifest.events, manifest.executions, ref, fresh=True)


async def _guard(connection: Connection, scope: Scope, sha256s: list[str]) -> None:
    """Keep the collector off the objects until this transaction ends, and refuse those it has condemned."""
    await lock_payloads(connection, scope, shared=True)
    grave = await connection.fetchval(
        "SELECT sha256 FROM noetl.payload_tombstone WHERE sha256 = ANY ($1) LIMIT 1", sha256s
    )
    if grave is not None:
        raise PayloadCollected(f"the archived object {grave} was garbage-collected; archive again", sha256=grave)


async def _list_payloads(connection: Connection, scope: Scope, month: Partition, objects: list[str]) -> None:
    await connection.execute("DELETE FROM noetl.archive_payload WHERE partition = $1", month.name)
    await connection.execute(
        _LIST_PAYLOADS, scope.tenant_id, scope.organization_id, month.name, month.first_id, month.end_id, objects
    )


def _archived(scope: Scope, partition: str, events: int, executions: int, ref: PayloadRef, *, fresh: bool) -> Archived:
    return Archived(
        scope=scope, partition=partition, events=events, executions=executions, manifest_ref=ref, fresh=fresh
    )
