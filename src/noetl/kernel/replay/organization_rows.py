"""The rows of data pipelines, compared with the events they follow from, in bounded memory. Only reads.

Rows and events are read as they are at one moment. Lease times are not compared: no event tells them. A row that
retention may have deleted is not expected, if it is old enough for a recorded sweep and is not there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from noetl.kernel.ledger.postgres.database import Connection, Database, bind, translated
from noetl.kernel.ledger.rows import COLUMNS, to_events
from noetl.kernel.projections.folds.checksum import Sums
from noetl.kernel.projections.folds.fold import FoldedRow, Row, RowKey, moment, parsed_row
from noetl.kernel.projections.folds.organization.fold import PIPELINE_EVENTS, Pipelines
from noetl.kernel.projections.folds.organization.tables import KEYS, key_of
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.compare import Suspects, unequal
from noetl.kernel.replay.pages import EventPages
from noetl.kernel.replay.report import Difference
from noetl.model.event import Event
from noetl.model.stream import Scope

_PAGE: Final = 1000
_LEASE_TIMES: Final = frozenset({"lease_until", "last_heartbeat"})
_NOT_FOLDED: Final[dict[str, frozenset[str]]] = {
    "task": _LEASE_TIMES,
    "cron_slot": _LEASE_TIMES,
    "delivery": _LEASE_TIMES,
    "view_version": _LEASE_TIMES,
    "outbox": frozenset({"status", "attempts", "last_error", "lease_token", "lease_until", "processed_at"}),
    "retired_generation": frozenset({"files_removed_at"}),
    "trimmed_version": frozenset({"files_removed_at"}),
}
_ORGANIZATION: Final = frozenset({"tenant_id", "organization_id"})

_EVENTS: Final = (
    f"SELECT {COLUMNS} FROM noetl.known_event WHERE event_type = ANY ($1::text[]) ORDER BY stream_id, stream_version"  # noqa: S608
)
_DROPPED: Final = "SELECT EXISTS (SELECT FROM noetl.event_archive WHERE dropped_at IS NOT NULL)"


async def pipeline_differences(
    database: Database, scope: Scope, history: EventPages | None = None, upcasters: Upcasters | None = None
) -> list[Difference]:
    """Compare an organization's rows of pipelines with its events; archived events are read from the history."""
    async with _one_moment(database, scope) as connection:
        sides = _Sides(connection, scope, history, upcasters or Upcasters())
        expected, found = Sums(), Sums()
        async for folded in sides.folded():
            expected.add(folded)
        async for stored in sides.stored():
            found.add(stored)
        places = unequal(expected, found)
        if not places:
            return []
        suspects = Suspects(places)
        async for folded in sides.folded():
            suspects.expect(folded)
        async for stored in sides.stored():
            suspects.find(stored)
        return suspects.differences()


@asynccontextmanager
async def _one_moment(database: Database, scope: Scope) -> AsyncIterator[Connection]:
    pool = await database.pool()
    with translated():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await bind(connection, scope)
            yield connection


class _Sides:
    """What the events say and what is stored, each readable more than once."""

    def __init__(self, connection: Connection, scope: Scope, history: EventPages | None, upcasters: Upcasters) -> None:
        self._connection = connection
        self._scope = scope
        self._history = history
        self._upcasters = upcasters

    async def folded(self) -> AsyncIterator[FoldedRow]:
        """Fold the events and give every row they leave."""
        pipelines = Pipelines()
        swept = await SweptRows.read(self._connection)
        stream_id = None
        by_stream = not await self._connection.fetchval(_DROPPED)
        async for event in self._live() if by_stream or self._history is None else self._archived(self._history):
            if by_stream and event.stream_id != stream_id:
                stream_id = event.stream_id
                for table, key, row in pipelines.settled():
                    if swept.expected(table, key, row):
                        yield self._row(table, key, row)
            pipelines.apply(self._upcasters.upcast(event))
        for table, rows in pipelines.tables().items():
            for key, row in rows.items():
                if swept.expected(table, key, row):
                    yield self._row(table, key, row)

    async def stored(self) -> AsyncIterator[FoldedRow]:
        """Give every row that is stored, written the way the fold writes it."""
        for table in KEYS:
            hidden = _ORGANIZATION | _NOT_FOLDED.get(table, frozenset())
            async for stored in self._connection.cursor(f"SELECT * FROM noetl.{table}", prefetch=_PAGE):  # noqa: S608
                row = {name: _value(name, value) for name, value in stored.items() if name not in hidden}
                yield self._row(table, key_of(table, row), row)

    async def _live(self) -> AsyncIterator[Event]:
        page: list[Any] = []
        async for row in self._connection.cursor(_EVENTS, sorted(PIPELINE_EVENTS), prefetch=_PAGE):
            page.append(row)
            if len(page) == _PAGE:
                for event in to_events(page):
                    yield event
                page = []
        for event in to_events(page):
            yield event

    async def _archived(self, history: EventPages) -> AsyncIterator[Event]:
        """Give live and archived events, up to where the shards were at the moment the rows are looked at."""
        heads = await self._connection.fetch(
            "SELECT shard, position FROM noetl.shard WHERE position > 0 ORDER BY shard"
        )
        for head in heads:
            async for page in history.shard_pages(head["shard"], scope=self._scope, to_position=head["position"]):
                for event in page:
                    if event.event_type in PIPELINE_EVENTS:
                        yield event

    def _row(self, table: str, key: str, row: Row) -> FoldedRow:
        return FoldedRow(RowKey(self._scope.tenant_id, self._scope.organization_id, table, key), 0, 0, 0, 0, 0, row)


_JSON: Final = frozenset(
    {
        "bundle_ref",
        "pointers",
        "publish",
        "built",
        "definition",
        "inputs",
        "inputs_ref",
        "outputs",
        "logs_ref",
        "partition_by",
        "schema",
        "manifest_ref",
        "state",
        "payload",
        "settings",
        "pinned",
        "target",
        "retry_backoff",
        "result",
        "row_filter",
        "dependents",
        "processed_by",
        "selection",
        "keys_ref",
        "policy",
        "rules",
        "channels",
        "document",
        "columns_ref",
    }
)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, UUID) or (type(value) is int and name.endswith("_id")):
        return str(value)
    if isinstance(value, list):
        return [_value(name, one) for one in value]
    return parsed_row(value) if name in _JSON and value is not None else value


_TIMES: Final = {"outbox": ("outbox", "created_at"), "queries": ("query_audit", "asked_at")}
"""The table of each kind whose age alone decides, and the column that tells it."""
_SWEEPS: Final = "SELECT kind, until FROM noetl.sweep WHERE until IS NOT NULL"
_TASKS: Final = "SELECT task_id::text FROM noetl.task WHERE generation = ANY ($1::uuid[])"


class SweptRows:
    """Tells which rows of the fold need not be stored."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[str, str]] = {}
        self._there: dict[str, frozenset[str]] = {}
        self._gone: frozenset[str] = frozenset()
        self._tasks_until: str | None = None
        self._tasks_there: frozenset[str] = frozenset()
        self._swept_tasks: set[str] = set()

    @classmethod
    async def read(cls, connection: Connection) -> SweptRows:
        """Read what was swept so far, and what is left of it."""
        found = cls()
        sweeps: dict[str, datetime] = {row["kind"]: row["until"] for row in await connection.fetch(_SWEEPS)}
        for kind, until in sweeps.items():
            if kind == "tasks":
                found._tasks_until = moment(until)
                found._gone = frozenset(
                    str(row[0]) for row in await connection.fetch("SELECT noetl.gone_generations()")
                )
                rows = await connection.fetch(_TASKS, sorted(found._gone))
                found._tasks_there = frozenset(row[0] for row in rows)
            elif kind in _TIMES:
                table, column = _TIMES[kind]
                found._until[table] = column, moment(until)
                found._there[table] = await _left(connection, table, column, until)
        return found

    def expected(self, table: str, key: str, row: Row) -> bool:
        """Tell whether a folded row has to be stored; a task is asked about before what it reads."""
        if table == "task":
            return self._task(row)
        if table == "task_input":
            return row["task_id"] not in self._swept_tasks
        if table not in self._until:
            return True
        column, until = self._until[table]
        # Times are written in one width, so that the earlier one is also the lesser text.
        return row[column] is None or row[column] >= until or key in self._there[table]

    def _task(self, row: Row) -> bool:
        if self._tasks_until is None or row["generation"] not in self._gone or row["task_id"] in self._tasks_there:
            return True
        if row["ended_at"] is None or row["ended_at"] >= self._tasks_until:
            return True
        self._swept_tasks.add(row["task_id"])
        return False


async def _left(connection: Connection, table: str, column: str, until: datetime) -> frozenset[str]:
    names = ", ".join(KEYS[table])
    rows = await connection.fetch(f"SELECT {names} FROM noetl.{table} WHERE {column} < $1", until)  # noqa: S608
    return frozenset("|".join(map(str, row)) for row in rows)
