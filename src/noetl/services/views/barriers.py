"""Barriers: up to which mark a version of a view was brought, written with the rows themselves. One decision, `admit`.

A batch that a barrier covers changes nothing; one that begins where no barrier ends would leave a gap, and is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from noetl.errors import Conflict
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.event import parse_time
from noetl.model.mark import Mark

_NEWEST: Final = """
SELECT batch, since, mark, watermark, late, late_total, changed, removed, checkpoint, at FROM noetl.view_barrier
WHERE version_id = $1 ORDER BY batch DESC LIMIT 1
"""
_LATE: Final = """
SELECT batch, since, mark, watermark, late, late_total, changed, removed, checkpoint, at FROM noetl.view_barrier
WHERE version_id = $1 AND late > 0 ORDER BY batch
"""
_PUT: Final = """
INSERT INTO noetl.view_barrier (tenant_id, organization_id, version_id, batch, since, mark, watermark, late, late_total,
    changed, removed, checkpoint, at)
VALUES (noetl.tenant(), noetl.organization(), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp())
"""
_FORGET: Final = "DELETE FROM noetl.view_barrier WHERE version_id = $1 AND batch < $2 AND late = 0"
_COUNT_LATE: Final = """
SELECT count(*) FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS w (shard, first, last)
JOIN noetl.event AS e ON e.shard = w.shard AND e.position > w.first AND e.position <= w.last
WHERE e.{column} <= $4 AND (cardinality($5::text[]) + cardinality($6::text[]) = 0
                            OR e.event_type = ANY ($5::text[]) OR e.event_type ^@ ANY ($6::text[]))
  AND ($7::bigint IS NULL OR e.execution_id = $7) AND ($8::timestamptz IS NULL OR e.event_time >= $8)
"""


class Barrier(msgspec.Struct, frozen=True, kw_only=True):
    """One barrier as it stands."""

    batch: int
    since: str
    mark: str
    watermark: datetime | None
    late: int
    """Events of this batch that came too late."""
    late_total: int
    changed: int
    removed: int
    checkpoint: str
    at: datetime


class Batch(msgspec.Struct, kw_only=True):
    """What a driver tells of one batch."""

    batch: int
    mark: str
    checkpoint: str
    since: str | None = None
    watermark: str | None = None
    whole: bool = False
    """Whether these are all rows of the view, not only those that changed."""
    columns: list[tuple[str, str]] = []
    rows: dict[str, str] = {}
    gone: list[str] = []

    @property
    def start(self) -> str:
        """The mark after which the batch begins."""
        return self.since or Mark.zero(len(Mark.parse(self.mark).positions)).token()

    @property
    def late_until(self) -> datetime | None:
        """The moment up to which events are late."""
        return None if self.watermark is None else parse_time(self.watermark)


Admitted = Literal["apply", "covered"]


def admit(batch: Batch, standing: Barrier | None, view: str) -> Admitted:
    """Decide whether a batch is to be applied or stands already; one that fits nowhere is refused."""
    hint = f"`noetl views rebuild {view}` builds it anew, beside what serves"
    if standing is None:
        if batch.batch != 0:
            raise Conflict(f"view {view} has no barrier, but its checkpoint is at batch {batch.batch}", hint=hint)
        return "apply"
    if batch.checkpoint != standing.checkpoint:
        raise Conflict(f"view {view} stands at a barrier of another checkpoint than this one", hint=hint)
    mark, known = Mark.parse(batch.mark), Mark.parse(standing.mark)
    if known.covers(mark):
        return "covered"
    if not known.covers(Mark.parse(batch.start)):
        raise Conflict(
            f"view {view}: batch {batch.batch} begins after the barrier of batch {standing.batch}", hint=hint
        )
    return "apply"


async def newest(connection: Connection, version_id: str) -> Barrier | None:
    """Return the newest barrier of a version."""
    row = await connection.fetchrow(_NEWEST, version_id)
    return None if row is None else Barrier(**dict(row))


async def with_late(connection: Connection, version_id: str) -> list[Barrier]:
    """Return the barriers that left late events out, in order."""
    return [Barrier(**dict(row)) for row in await connection.fetch(_LATE, version_id)]


async def put(
    connection: Connection,
    version_id: str,
    batch: Batch,
    standing: Barrier | None,
    late: int,
    changed: int,
    removed: int,
) -> None:
    """Write the barrier of a batch, and forget those before it that nothing needs."""
    total = late + (0 if standing is None else standing.late_total)
    own = (batch.batch, batch.start, batch.mark, batch.late_until, late, total, changed, removed, batch.checkpoint)
    await connection.execute(_PUT, version_id, *own)
    await connection.execute(_FORGET, version_id, batch.batch)


async def count_late(connection: Connection, batch: Batch, source: Any) -> int:
    """Count the events of a batch that came too late; `source` is the view's definition."""
    until = batch.late_until
    if source.watermark_seconds is None or until is None:
        return 0
    pairs = zip(Mark.parse(batch.start).positions, Mark.parse(batch.mark).positions, strict=True)
    ranges = [(shard, first, last) for shard, (first, last) in enumerate(pairs) if last > first]
    if not ranges:
        return 0
    exact = [name for name in source.types if not name.endswith("*")]
    begun = [name[:-1] for name in source.types if name.endswith("*")]
    counted: int = await connection.fetchval(
        _COUNT_LATE.format(column=source.time_column),
        *(list(column) for column in zip(*ranges, strict=True)),
        until,
        exact,
        begun,
        None if source.execution is None else int(source.execution),
        None if source.since is None else parse_time(source.since),
    )
    return counted
