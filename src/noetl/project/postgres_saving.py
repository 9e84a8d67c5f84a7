"""Writes the rows of a batch into PostgreSQL: many new ones are copied in at once, all others are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from noetl.ledger.database import Connection
from noetl.project import sql
from noetl.project.rows import COLUMNS, Columns

MANY: Final = 100
"""So many rows are worth the detour over a table of the session, which costs several round trips."""

_first: Callable[[Columns], int] = itemgetter(COLUMNS.index("first_position"))


async def save_rows(connection: Connection, rows: Sequence[Columns], after: int) -> int:
    """Write rows and return how many were written; what another shard has stays as it is.

    A row that was opened behind `after` is new. If one is there nevertheless this raises `UniqueViolationError`.
    """
    # In one order for all shards, so that two that open the same row wait for each other instead of deadlocking.
    new = sorted(row for row in rows if _first(row) > after)
    if len(new) < MANY:
        return await merge_rows(connection, rows)
    await connection.execute(sql.GIVEN)
    await connection.copy_records_to_table(sql.GIVEN_ROW, records=new, columns=COLUMNS)
    await connection.execute(sql.INSERT_GIVEN)
    return len(new) + await merge_rows(connection, [row for row in rows if _first(row) <= after])


async def merge_rows(connection: Connection, rows: Sequence[Columns]) -> int:
    """Write rows, whether they are there or not, and return how many were written."""
    if not rows:
        return 0
    tag: str = await connection.execute(sql.SAVE, *transposed(sorted(rows)))
    return int(tag.rpartition(" ")[2])


def transposed(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Turn rows into columns, the way statements take them."""
    return [list(column) for column in zip(*rows, strict=True)]
