"""What a commit says about lineage: what the attempt told goes in, what was not known before comes out. Nothing is written.

What a generation is known to come from is remembered, so that only its first commit in a process asks the database. It
only ever grows: what was covered once stays covered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson

from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.lineage import Edge, Lineage, completed, joined, opaque, renamed
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.model.task import TaskGrant, TaskReport, TaskTarget

INLINE_BYTES: Final = 48 * 1024
"""Edges up to this size stand in the event itself."""
_JSON: Final = "application/json"
_KEPT: Final = 4096
_SILENT: Final = "whoever did the task told nothing of it"
_STANDING: Final = """
SELECT coalesce(s.version, 0) AS stream_version, l.version, l.number, l.how, l.reason, l.columns_ref
FROM (SELECT $1::uuid AS dataset_version) AS w
LEFT JOIN noetl.stream AS s ON s.stream_id = 'dataset/' || w.dataset_version::text
LEFT JOIN LATERAL (
    SELECT * FROM noetl.dataset_lineage AS l WHERE l.dataset_version = w.dataset_version ORDER BY l.version DESC LIMIT 1
) AS l ON true
"""
_EDGES: Final = """
SELECT output_column, input_dataset_uuid::text AS input_dataset_uuid, input_column, kind
FROM noetl.column_lineage WHERE dataset_version = $1 AND version = $2 ORDER BY place
"""
_edges = msgspec.json.Decoder(tuple[Edge, ...])


class LineageChange(msgspec.Struct, frozen=True, kw_only=True):
    """More is known of a generation than before."""

    target: TaskTarget
    told: str
    """The digest of what the attempt told."""
    lineage: Lineage
    number: int
    version: int
    """The version of the generation's stream this builds on."""
    ref: PayloadRef | None = None
    """Where the edges are when they are too many for an event."""


class Lineages:
    """Compares what attempts tell with what is known."""

    def __init__(self, database: Database, payloads: PayloadStore) -> None:
        self._database = database
        self._payloads = payloads
        self._covered: OrderedDict[tuple[Scope, str], set[str]] = OrderedDict()

    async def changes(self, scope: Scope, grant: TaskGrant, report: TaskReport) -> list[LineageChange]:
        """Return what a commit adds to what is known of its outputs."""
        found = []
        for target in grant.targets:
            told = _told(grant, report, target)
            if told is not None and told.digest not in self._covered.get((scope, target.dataset_version), ()):
                change = await self._change(scope, target, told)
                found += [] if change is None else [change]
        return found

    def recorded(self, scope: Scope, changes: Sequence[LineageChange]) -> None:
        """Remember what stands now."""
        for change in changes:
            self._cover(scope, change.target.dataset_version, change.told)

    async def _change(self, scope: Scope, target: TaskTarget, told: Lineage) -> LineageChange | None:
        async with self._database.transaction(scope) as connection:
            (row,) = await connection.fetch(_STANDING, target.dataset_version)
            standing = await self._standing(scope, connection, target.dataset_version, row)
        lineage = joined(standing, told)
        if standing is not None and lineage is standing:
            self._cover(scope, target.dataset_version, told.digest)
            return None
        ref = None
        edges = msgspec.json.encode(lineage.edges)
        if len(edges) > INLINE_BYTES:
            ref = await self._payloads.store(scope, edges, _JSON)
        return LineageChange(
            target=target,
            told=told.digest,
            lineage=lineage,
            number=(row["number"] or 0) + 1,
            version=row["stream_version"],
            ref=ref,
        )

    async def _standing(self, scope: Scope, connection: Connection, dataset_version: str, row: Any) -> Lineage | None:
        if row["version"] is None:
            return None
        if row["columns_ref"] is not None:
            ref = msgspec.convert(orjson.loads(row["columns_ref"]), PayloadRef)
            return Lineage(row["how"], _edges.decode(await self._payloads.fetch(scope, ref)), row["reason"])
        edges = await connection.fetch(_EDGES, dataset_version, row["version"])
        return Lineage(row["how"], tuple(Edge(*edge.values()) for edge in edges), row["reason"])

    def _cover(self, scope: Scope, dataset_version: str, digest: str) -> None:
        self._covered.setdefault((scope, dataset_version), set()).add(digest)
        self._covered.move_to_end((scope, dataset_version))
        while len(self._covered) > _KEPT:
            self._covered.popitem(last=False)


def _told(grant: TaskGrant, report: TaskReport, target: TaskTarget) -> Lineage | None:
    """Return what an attempt told of an output, in ids of datasets; of one it left alone there is nothing to tell."""
    columns = dict.fromkeys(
        one.name for write in report.writes if write.output == target.output for one in write.schema
    )
    if not columns:
        return None
    told = report.lineage.get(target.output)
    if told is None:
        told = opaque("unknown", columns, [one.alias for one in grant.inputs], _SILENT)
    parted = {name: [one.alias for one in grant.inputs if name in one.partition_by] for name in target.partition_by}
    sifted = [(one.alias, name) for one in grant.inputs for name in one.where]
    whole = completed(told, list(columns), parted, sifted)
    return renamed(whole, {one.alias: one.dataset_uuid for one in grant.inputs})
