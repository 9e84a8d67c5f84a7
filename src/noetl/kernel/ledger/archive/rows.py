"""Archives as the database records them: the rows of `noetl.event_archive` and `noetl.archive_payload`, and their
events.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from noetl.errors import HistoryNotKept
from noetl.kernel.ledger.archive.manifest import Manifest, Payloads, archived_events, decode_manifest
from noetl.kernel.ledger.archive.partition import Partition, partition_named
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.model.catalogue import BY_NAME
from noetl.model.catalogue.retention import ArchiveRemoved, PartitionArchived
from noetl.model.event import Draft, Event, time_text
from noetl.model.ids import organization_root_id
from noetl.model.locator import Locator
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

_SELECT = (
    "SELECT tenant_id, organization_id, partition, events, executions, bounds, manifest_ref, archived_at,"
    " dropped_at IS NOT NULL AS dropped, removed_at IS NOT NULL AS removed FROM noetl.event_archive"
    " WHERE ($1::text IS NULL OR partition = $1) ORDER BY partition, tenant_id, organization_id"
)


class ArchiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One organization's part of one archived partition.

    Once `dropped`, its events stand in the archive alone; once `removed`, nowhere.
    """

    scope: Scope
    partition: Partition
    events: int
    executions: int
    bounds: dict[int, tuple[int, int]]
    manifest_ref: PayloadRef
    archived_at: datetime
    dropped: bool
    removed: bool

    async def manifest(self, payloads: Payloads) -> Manifest:
        """Fetch and prove the manifest."""
        return decode_manifest(await payloads.fetch(self.scope, self.manifest_ref))

    def reaches(self, shard: int, from_position: int, to_position: int) -> bool:
        """Tell whether the archive holds positions of a shard within these bounds."""
        bounds = self.bounds.get(shard)
        return bounds is not None and bounds[0] <= to_position and bounds[1] >= from_position


async def archive_rows(connection: Connection, partition: str | None = None) -> list[ArchiveRow]:
    """Read the rows that this transaction may see, of one partition or of all, oldest first."""
    return [_row(found) for found in await connection.fetch(_SELECT, partition)]


def not_kept(rows: list[ArchiveRow]) -> HistoryNotKept:
    """Say which history is gone and from where on it is kept; the rows are removed ones, not none."""
    names = sorted({row.partition.name for row in rows})
    kept_from = max(row.partition.ends for row in rows)
    return HistoryNotKept(
        f"the archive of {', '.join(names)} was removed; history is kept for executions from {time_text(kept_from)} on",
        partitions=names,
        kept_from=kept_from,
    )


def _row(found: Any) -> ArchiveRow:
    return ArchiveRow(
        scope=Scope(found["tenant_id"], found["organization_id"]),
        partition=partition_named(found["partition"]),
        events=found["events"],
        executions=found["executions"],
        bounds=msgspec.json.decode(found["bounds"], type=dict[int, tuple[int, int]]),
        manifest_ref=msgspec.json.decode(found["manifest_ref"], type=PayloadRef),
        archived_at=found["archived_at"],
        dropped=found["dropped"],
        removed=found["removed"],
    )


PRODUCER = "retention"
"""Which role of the organization says what became of its partitions, whichever process did it."""

_UPSERT = """
INSERT INTO noetl.event_archive (tenant_id, organization_id, partition, first_execution_id, last_execution_id, events,
                                 executions, bounds, manifest_ref, manifest_sha256, archived_at, removed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (tenant_id, organization_id, partition) DO UPDATE SET
    first_execution_id = excluded.first_execution_id, last_execution_id = excluded.last_execution_id,
    events = excluded.events, executions = excluded.executions, bounds = excluded.bounds,
    manifest_ref = excluded.manifest_ref, manifest_sha256 = excluded.manifest_sha256,
    archived_at = excluded.archived_at, removed_at = excluded.removed_at
"""

_RECORDED = f"SELECT {COLUMNS} FROM noetl.event WHERE execution_id = $1 AND event_type IN ('partition.archived', 'archive.removed') ORDER BY stream_id, stream_version"  # noqa: S608

_LIST = """
INSERT INTO noetl.archive_payload (tenant_id, organization_id, partition, digest, holds_events)
SELECT $1, $2, $3, decode(needed.sha256, 'hex'), needed.sha256 = $4
FROM unnest($4::text || $5::text[]) AS needed (sha256) ON CONFLICT DO NOTHING
"""

_MARK_DROPPED = """
UPDATE noetl.event_archive AS a SET dropped_at = clock_timestamp()
WHERE a.dropped_at IS NULL AND to_regclass('noetl.' || quote_ident(a.partition)) IS NULL
"""


def archived_draft(scope: Scope, manifest: Manifest, ref: PayloadRef, event_id: int, now: datetime) -> Draft:
    """Return the event that says a partition was archived."""
    said = PartitionArchived(
        partition=manifest.partition,
        events=manifest.events,
        executions=manifest.executions,
        first_execution_id=manifest.first_execution_id,
        last_execution_id=manifest.last_execution_id,
        bounds=manifest.bounds,
    )
    return retention_draft(
        scope,
        "partition.archived",
        manifest.partition,
        meta=msgspec.to_builtins(said),
        key=ref.sha256,
        payload_ref=ref,
        event_id=event_id,
        now=now,
    )


def retention_draft(
    scope: Scope,
    event_type: str,
    partition: str,
    *,
    meta: dict[str, object],
    key: str,
    payload_ref: PayloadRef | None,
    event_id: int,
    now: datetime,
) -> Draft:
    """Return an event of a partition's retention stream, which stands under the organization's root id."""
    kind = BY_NAME[event_type]
    return Draft(
        event_id=event_id,
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        execution_id=organization_root_id(scope.tenant_id, scope.organization_id),
        stream_id=f"retention/{partition}",
        aggregate_type=kind.aggregate,
        aggregate_id=partition,
        event_type=event_type,
        schema_name=kind.schema_name,
        schema_version=kind.version,
        event_time=now,
        producer=str(Locator(scope.tenant_id, scope.organization_id, kind="role", path=(PRODUCER,))),
        idempotency_key=f"{event_type}/{partition}/{key}",
        payload_ref=payload_ref,
        meta=meta,
    )


async def write_row(connection: Connection, scope: Scope, archived: Draft, removed_at: datetime | None = None) -> None:
    """Write the row that a `partition.archived` event stands for."""
    meta, ref = archived.meta, archived.payload_ref
    assert ref is not None
    await connection.execute(
        _UPSERT,
        scope.tenant_id,
        scope.organization_id,
        meta["partition"],
        int(meta["first_execution_id"]),
        int(meta["last_execution_id"]),
        meta["events"],
        meta["executions"],
        msgspec.json.encode(meta["bounds"]).decode(),
        msgspec.json.encode(ref, order="sorted").decode(),
        ref.sha256,
        archived.event_time,
        removed_at,
    )


def removed_draft(scope: Scope, partition: str, event_id: int, now: datetime) -> Draft:
    """Return the event that says an archive was given up."""
    return retention_draft(
        scope,
        "archive.removed",
        partition,
        meta=msgspec.to_builtins(ArchiveRemoved(partition=partition)),
        key="once",
        payload_ref=None,
        event_id=event_id,
        now=now,
    )


async def rebuild_archive_rows(database: Database, payloads: Payloads, scope: Scope) -> int:
    """Write an organization's archive rows anew from its retention events, and return how many there are."""
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    async with database.transaction(scope) as connection:
        recorded = to_events(await connection.fetch(_RECORDED, root))
    archived: dict[str, tuple[Event, datetime | None]] = {}
    for event in recorded:
        name = event.aggregate_id
        if event.event_type == "partition.archived":
            archived[name] = (event, None)
        elif event.event_type == "archive.removed":
            archived[name] = (archived[name][0], event.event_time)
    for event, removed_at in archived.values():
        await _rebuild(database, payloads, scope, event, removed_at)
    async with database.transaction(None, "retention") as connection:
        await connection.execute(_MARK_DROPPED)
    return len(archived)


async def _rebuild(
    database: Database, payloads: Payloads, scope: Scope, archived: Event, removed_at: datetime | None
) -> None:
    month = partition_named(archived.aggregate_id)
    owner = (scope.tenant_id, scope.organization_id)
    assert archived.payload_ref is not None
    if removed_at is None:
        manifest = decode_manifest(await payloads.fetch(scope, archived.payload_ref))
        for found in manifest.objects:
            digests = {
                ref.sha256
                async for event in archived_events(payloads, scope, found, b'_ref"')
                for ref in (event.payload_ref, event.fields_ref)
                if ref is not None
            }
            async with database.transaction(scope) as connection:
                await connection.execute(_LIST, *owner, month.name, found.ref.sha256, sorted(digests))
    async with database.transaction(scope) as connection:
        await write_row(connection, scope, archived, removed_at)
