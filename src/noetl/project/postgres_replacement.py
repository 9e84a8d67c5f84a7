"""A shard being built anew in PostgreSQL: rows are gathered in a temporary table and change places at the very end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from noetl.errors import InputError, Unsupported
from noetl.ledger.database import translated
from noetl.model.broken_stream import BrokenStream
from noetl.model.canonical import canonical_json
from noetl.project import sql
from noetl.project.folds.fold import FoldedRow
from noetl.project.port import Replaced
from noetl.project.postgres_broken import write_broken
from noetl.project.rows import COLUMNS, to_columns

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
