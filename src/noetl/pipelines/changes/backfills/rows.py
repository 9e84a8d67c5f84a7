"""Backfills as their rows have them, for those who plan, drive or show them. Nothing is written."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import orjson

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.ids import Id64
from noetl.model.payload_ref import PayloadRef

BackfillStatus = Literal["queueing", "running", "paused", "cancelled", "completed", "failed"]

COLUMNS: Final = """
b.backfill_id, b.version, b.dag, b.job, b.generation::text AS generation, b.dataset_uuid::text AS dataset_uuid,
b.dataset_version::text AS dataset_version, b.selection, b.keys_ref, b.total, b.queued, b.made, b.tasks, b.max_in_flight,
b.status, b.requested_by, b.error, b.created_at, b.moved_at, b.ended_at
"""
_ONE: Final = f"SELECT {COLUMNS} FROM noetl.backfill AS b WHERE b.backfill_id = $1"  # noqa: S608
_LIST: Final = f"""
SELECT {COLUMNS} FROM noetl.backfill AS b
WHERE ($1::text IS NULL OR b.status = $1) AND ($2::bigint IS NULL OR b.backfill_id < $2)
ORDER BY b.backfill_id DESC LIMIT $3
"""  # noqa: S608
# Of a run some tasks build the partitions that were asked for, others follow from them.
_PROGRESS: Final = """
SELECT count(*) FILTER (WHERE own AND status IN ('Completed', 'Skipped')) AS built,
       count(*) FILTER (WHERE own AND status = 'Failed' AND available_at IS NULL) AS failed,
       count(*) FILTER (WHERE own AND status = 'Canceled') AS cancelled,
       count(*) FILTER (WHERE available_at IS NOT NULL) AS open,
       count(*) FILTER (WHERE NOT own) AS following,
       count(*) FILTER (WHERE NOT own AND status = 'Failed' AND available_at IS NULL) AS following_failed
FROM (SELECT t.status, t.available_at, t.generation = $2 AS own FROM noetl.task AS t WHERE t.execution_id = $1) AS task
"""


class PublicBackfill(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that are built again, and how many of them were given to tasks."""

    backfill_id: Id64
    dag: str
    job: str
    generation: str
    dataset_uuid: str
    dataset_version: str
    selection: dict[str, Any]
    total: int
    queued: int
    made: int
    tasks: int
    max_in_flight: int
    status: BackfillStatus
    requested_by: str
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class Backfill(PublicBackfill, frozen=True, kw_only=True):
    """A backfill as its row has it."""

    version: int
    keys_ref: PayloadRef
    moved_at: datetime

    @property
    def open(self) -> bool:
        """Whether something of it is left to do."""
        return self.status in ("queueing", "running", "paused")


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the tasks of a backfill."""

    built: int
    failed: int
    cancelled: int
    open: int
    """Tasks of its run that wait or run, those that follow included."""
    following: int
    """Tasks of jobs that read what was built."""
    following_failed: int


def backfill_of(row: Any) -> Backfill:
    """Read a row of `COLUMNS`."""
    fields = {name: value for name, value in dict(row).items() if name in Backfill.__struct_fields__}
    fields["selection"] = orjson.loads(fields["selection"])
    fields["keys_ref"] = msgspec.convert(orjson.loads(fields["keys_ref"]), PayloadRef)
    return Backfill(**fields)


async def read_backfill(connection: Connection, backfill_id: int) -> Backfill:
    """Return a backfill by its id."""
    row = await connection.fetchrow(_ONE, backfill_id)
    if row is None:
        raise NotFound(f"there is no backfill {backfill_id}", hint="`noetl datasets backfills list` shows them")
    return backfill_of(row)


async def read_backfills(connection: Connection, status: str | None, before: int | None, limit: int) -> list[Backfill]:
    """Return backfills, the newest first."""
    return [backfill_of(row) for row in await connection.fetch(_LIST, status, before, limit)]


async def read_progress(connection: Connection, one: Backfill) -> Progress:
    """Return what became of a backfill's tasks."""
    row = await connection.fetchrow(_PROGRESS, one.backfill_id, one.generation)
    assert row is not None
    return Progress(**dict(row))
