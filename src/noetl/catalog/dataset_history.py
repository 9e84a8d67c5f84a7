"""Datasets as they were: a mark goes in, which versions served readers then and what stood in them comes out.

Only events up to the mark count, each in its own shard, so that the same mark gives the same answer for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

import orjson

from noetl.catalog.dag_switching import SWITCHES
from noetl.catalog.dataset_rows import Partition
from noetl.errors import HistoryNotKept
from noetl.ledger.archive.rows import archive_rows, not_kept
from noetl.ledger.database import Connection, Database
from noetl.model.event import Event
from noetl.model.ids import organization_root_id
from noetl.model.mark import MAX_POSITION, Mark
from noetl.model.stream import Scope, Stream
from noetl.plan import identity

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
