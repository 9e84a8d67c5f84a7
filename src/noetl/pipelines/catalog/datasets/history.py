"""Datasets as they were at a mark, and since when retention still has them. Only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol

import orjson

from noetl.errors import HistoryNotKept
from noetl.kernel.ledger.archive.rows import archive_rows, not_kept
from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.model.event import Event, time_text
from noetl.model.ids import organization_root_id
from noetl.model.mark import MAX_POSITION, Mark
from noetl.model.stream import Scope, Stream
from noetl.pipelines.catalog.dags.switches import SWITCHES
from noetl.pipelines.catalog.datasets.rows import Partition
from noetl.pipelines.plan import identity

_CURRENT = "SELECT dag, dag_version_id::text AS dag_version_id FROM noetl.dag_current_version"
_SWITCHES = (
    "SELECT stream_id, shard, position, meta FROM noetl.event WHERE execution_id = $1 AND event_type = ANY ($2)"
    " AND starts_with(stream_id, 'dag/') ORDER BY stream_id, stream_version"
)
_POSITIONS = "SELECT stream_id, stream_version, position FROM noetl.event WHERE stream_id = ANY ($1)"


class EventReader(Protocol):
    """Reads streams, archived events among them."""

    def read(self, stream: Stream, from_version: int = 1) -> AsyncIterator[Event]:
        """Give the events of a stream from a version on, in order."""
        ...

    def read_kept(self, stream: Stream) -> AsyncIterator[Event]:
        """Give the events of a stream that are still kept, in order; those of removed archives are left out."""
        ...


async def serving(connection: Connection, scope: Scope, mark: Mark | None) -> dict[str, str]:
    """Return the version that serves each DAG, now or at a mark."""
    if mark is None:
        return {row["dag"]: row["dag_version_id"] for row in await connection.fetch(_CURRENT)}
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    found = {}
    for row in await connection.fetch(_SWITCHES, root, list(SWITCHES)):
        if row["position"] <= mark.positions[row["shard"]]:
            found[row["stream_id"].removeprefix("dag/")] = orjson.loads(row["meta"])["dag_version_id"]
    return found


async def positions(
    database: Database,
    history: EventReader,
    scope: Scope,
    streams: Sequence[Stream],
    versions: Iterable[tuple[str, int]],
    mark: Mark,
) -> dict[tuple[str, int], int]:
    """Return where in their shards versions of streams stand, also those whose events were archived.

    A version whose archive was removed is as good as the first of its shard, unless the mark lies before the end of what
    was removed: then nobody can tell any more what it covers, and HistoryNotKept is raised.
    """
    versions = list(versions)
    async with database.transaction(scope) as connection:
        rows = await connection.fetch(_POSITIONS, [stream.stream_id for stream in streams])
    found = {(row["stream_id"], row["stream_version"]): row["position"] for row in rows}
    archived = {stream_id for stream_id, version in versions if (stream_id, version) not in found}
    for stream in streams:
        if stream.stream_id in archived:
            try:
                async for event in history.read(stream):
                    found[stream.stream_id, event.stream_version] = event.position
            except HistoryNotKept:
                async for event in history.read_kept(stream):
                    found[stream.stream_id, event.stream_version] = event.position
    lost = [name for name in versions if name not in found]
    if lost:
        async with database.transaction(scope) as connection:
            removed = [row for row in await archive_rows(connection) if row.removed]
        shards = {stream.stream_id: stream.shard for stream in streams}
        for stream_id, _ in lost:
            shard = shards[stream_id]
            beyond = [row for row in removed if row.reaches(shard, mark.positions[shard] + 1, MAX_POSITION)]
            if beyond:
                raise not_kept(beyond)
    return found | dict.fromkeys(lost, 0)


async def partitions_at(
    database: Database,
    history: EventReader,
    scope: Scope,
    dataset_version: str,
    every: Sequence[Partition],
    mark: Mark,
) -> list[Partition]:
    """Return of all versions of a generation's partitions those that stood at a mark."""
    streams = {
        part.partition_key: identity.partition_stream(scope, dataset_version, part.partition_key) for part in every
    }
    wanted = [(streams[part.partition_key].stream_id, part.version) for part in every]
    placed = await positions(database, history, scope, list(streams.values()), wanted, mark)
    found: dict[str, Partition] = {}
    for part in every:
        stream = streams[part.partition_key]
        before = found.get(part.partition_key)
        if placed[stream.stream_id, part.version] <= mark.positions[stream.shard] and (
            before is None or part.version > before.version
        ):
            found[part.partition_key] = part
    return list(found.values())


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
