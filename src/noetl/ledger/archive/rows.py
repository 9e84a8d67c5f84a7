"""The rows of `noetl.event_archive`: which partitions an organization has in the payload store, and since when not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from noetl.errors import HistoryNotKept
from noetl.ledger.archive.manifest import Manifest, Payloads, decode_manifest
from noetl.ledger.archive.partition import Partition, partition_named
from noetl.ledger.database import Connection
from noetl.model.event import time_text
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
