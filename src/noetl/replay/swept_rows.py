"""Rows of history that retention may have deleted: what the events allow goes in, which folded rows are not expected comes out.

A row counts as swept only if it is old enough for a recorded sweep and is not there; whatever is there is compared.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from noetl.ledger.database import Connection
from noetl.project.folds.fold import Row, moment
from noetl.project.folds.pipelines.tables import KEYS

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
