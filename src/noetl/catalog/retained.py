"""What retention let go of: tombstones go in, "retained from" comes out for whoever asks beyond them. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from noetl.catalog.dataset_rows import Partition
from noetl.errors import HistoryNotKept
from noetl.ledger.database import Connection
from noetl.model.event import time_text

_STATE: Final = """
SELECT d.name, g.dataset_uuid::text AS dataset_uuid, r.purged_at, r.reason,
       EXISTS (SELECT FROM noetl.trimmed_version AS t WHERE t.dataset_version = g.dataset_version) AS trimmed
FROM noetl.dataset_version AS g JOIN noetl.dataset AS d USING (tenant_id, organization_id, dataset_uuid)
LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
WHERE g.dataset_version = $1
"""
_TRIMMED: Final = """
SELECT t.partition_key FROM unnest($2::text[], $3::bigint[]) AS asked (partition_key, version)
JOIN noetl.trimmed_version AS t USING (partition_key, version) WHERE t.dataset_version = $1 ORDER BY 1 LIMIT 1
"""
_FROM: Final = """
SELECT greatest(
    (SELECT max(r.served_until) FROM noetl.retired_generation AS r WHERE r.dataset_uuid = $1 AND r.purged_at IS NOT NULL),
    (SELECT max(later.committed_at) FROM noetl.trimmed_version AS t
     JOIN noetl.partition_version AS later ON later.dataset_version = t.dataset_version
      AND later.partition_key = t.partition_key AND later.version = t.version + 1
     WHERE t.dataset_uuid = $1))
"""
_OF_TASK: Final = """
SELECT coalesce(
    (SELECT format('generation %s, which it builds,', r.dataset_version) FROM noetl.retired_generation AS r
     WHERE r.generation = t.generation LIMIT 1),
    (SELECT format('partition %s at version %s, which it reads,', i.input_partition_key, i.input_version)
     FROM noetl.task_input AS i
     LEFT JOIN noetl.trimmed_version AS v ON v.dataset_version = i.input_dataset_version
      AND v.partition_key = i.input_partition_key AND v.version = i.input_version
     LEFT JOIN noetl.retired_generation AS r ON r.dataset_version = i.input_dataset_version
     WHERE i.task_id = t.task_id AND (v.version IS NOT NULL OR r.purged_at IS NOT NULL) LIMIT 1))
FROM noetl.task AS t WHERE t.task_id = $1
"""
_GONE: Final = "SELECT dataset_version::text FROM noetl.retired_generation WHERE dataset_uuid = $1"


async def check_task_kept(connection: Connection, task_id: str) -> None:
    """Raise HistoryNotKept if a task cannot be tried again: what it builds or reads was let go."""
    what = await connection.fetchval(_OF_TASK, task_id)
    if what is not None:
        raise HistoryNotKept(
            f"task {task_id} cannot be tried again: {what} was let go by retention",
            hint="emit the source again, or deploy its DAG again",
        )


async def check_retained(connection: Connection, dataset_version: str, partitions: Sequence[Partition]) -> None:
    """Raise HistoryNotKept if these partitions of a generation, at these versions, are not all kept."""
    row = await connection.fetchrow(_STATE, dataset_version)
    if row is None or (row["purged_at"] is None and not row["trimmed"]):
        return
    if row["purged_at"] is None:
        asked = [part for part in partitions if not part.dropped]
        keys, versions = [part.partition_key for part in asked], [part.version for part in asked]
        missing = await connection.fetchval(_TRIMMED, dataset_version, keys, versions)
        if missing is None:
            return
        what = f"partition {missing} of generation {dataset_version} has lost the version asked for"
    else:
        what = f"generation {dataset_version} was purged on {row['purged_at']:%Y-%m-%d}: {row['reason']}"
    since = await retained_from(connection, row["dataset_uuid"])
    told = f"retained from {time_text(since)}" if since is not None else "retained as readers have it now"
    raise HistoryNotKept(
        f"dataset {row['name']} is {told}; {what}",
        hint="`noetl retention plan` says what is kept and why, `noetl retention pin` keeps a point for good",
        kept_from=since,
        dataset=row["name"],
    )


async def retained_from(connection: Connection, dataset_uuid: str) -> datetime | None:
    """Return the moment from which on every point of a dataset can be answered; None if nothing readers had is gone."""
    found: datetime | None = await connection.fetchval(_FROM, dataset_uuid)
    return found


async def gone_generations(connection: Connection, dataset_uuid: str) -> frozenset[str]:
    """Return the generations of a dataset that cannot serve again."""
    return frozenset(row[0] for row in await connection.fetch(_GONE, dataset_uuid))
