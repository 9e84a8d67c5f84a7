"""Writes projected rows into PostgreSQL: a batch is copied or merged, a rebuilt shard replaces the old rows at the
very end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import asyncpg

from noetl.errors import InputError, Unsupported
from noetl.kernel.ledger.postgres.database import Connection, translated
from noetl.kernel.projections.folds.fold import FoldedRow
from noetl.kernel.projections.stores.port import Replaced
from noetl.kernel.projections.stores.postgres import sql
from noetl.kernel.projections.stores.postgres.broken_streams import write_broken
from noetl.kernel.projections.stores.rows import COLUMNS, Columns, to_columns
from noetl.model.broken_stream import BrokenStream
from noetl.model.canonical import canonical_json

_IDLE_MINUTES = 15
"""How long a rebuild may be silent: it reads and folds between its writes, and a projector may be waiting for it."""


class PostgresReplacement:
    """See `Replacement` for the promises. It owns its connection's one transaction."""

    def __init__(self, connection: asyncpg.Connection, shard: int) -> None:
        self._connection = connection
        self._shard = shard
        self._transaction = connection.transaction()
        self._finished = False

    async def begin(self) -> None:
        """Take the shard's checkpoint, for which its projectors wait, and make room for the rows."""
        with translated():
            await self._transaction.start()
            await self._connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_MINUTES}min'")
            await self._connection.fetchrow(sql.LOCK, self._shard)
            try:
                await self._connection.execute(sql.STAGE)
            except asyncpg.InsufficientPrivilegeError as refused:
                raise Unsupported(
                    f"the database does not let a rebuild make temporary tables: {refused}",
                    hint="let its owner run: GRANT TEMPORARY ON DATABASE ... TO noetl_projector",
                ) from refused

    async def put(self, rows: Sequence[FoldedRow]) -> None:
        """Add rows."""
        with translated():
            # Sent even when empty: it shows the server that the rebuild is alive.
            await self._connection.copy_records_to_table(
                "rebuilt_row", records=map(to_columns, rows), columns=list(COLUMNS)
            )

    async def finish(self, upto: int, folds: Mapping[str, int], broken: Sequence[BrokenStream] = ()) -> Replaced:
        """Put what was added in the place of everything the shard had."""
        connection, shard = self._connection, self._shard
        with translated():
            await connection.execute(sql.STAGED)
            elsewhere = await connection.fetchrow(sql.ELSEWHERE, shard)
            if elsewhere is not None:
                raise InputError(
                    f"row {elsewhere['row_id']!r} of {elsewhere['projection']} is made from shard {shard} and from "
                    f"shard {elsewhere['shard']}, and there is no order between shards",
                    hint="write all events of one object to one stream, or choose another key",
                )
            counts = await connection.fetchrow(sql.COMPARE, shard)
            assert counts is not None
            await connection.execute(sql.REMOVE, shard)
            await connection.execute(sql.REPLACE)
            await connection.execute(sql.FORGET_BROKEN, shard)
            await write_broken(connection, broken)
            await connection.execute(sql.LET_GO, shard)
            await connection.execute(sql.MOVE, shard, upto, canonical_json(dict(folds)).decode())
        self._finished = True
        return Replaced(**dict(counts))

    async def end(self) -> None:
        """Commit what was finished; anything else goes with the connection."""
        if self._finished:
            with translated():
                await self._transaction.commit()


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
