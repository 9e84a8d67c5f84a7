"""Broken streams in PostgreSQL: read and changed in the transaction that moves their shard's checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

import asyncpg

from noetl.kernel.ledger.postgres.database import Connection, Database
from noetl.kernel.projections.stores.port import StreamChanges
from noetl.kernel.projections.stores.postgres import sql
from noetl.kernel.projections.stores.rows import same_places
from noetl.kernel.stream.encoding import decode, encode
from noetl.model.broken_stream import BrokenStream
from noetl.model.event import Event

_PAGE: Final = 1_000


async def broken_in(connection: Connection, shard: int | None = None) -> list[BrokenStream]:
    """Return the broken streams that the connection may see, of a shard or of all."""
    return [BrokenStream(**dict(row)) for row in await connection.fetch(sql.BROKEN, shard)]


async def change_streams(connection: Connection, shard: int, streams: StreamChanges) -> bool:
    """Write what a batch changes; return False, with nothing written, when it knows other streams than there are."""
    if not same_places(await broken_in(connection, shard), streams.known):
        return False
    for stream in streams.mended:
        await connection.execute(sql.MENDED, stream.tenant_id, stream.organization_id, stream.stream_id)
    await write_broken(connection, streams.broken)
    if streams.held:
        rows = [
            (
                event.tenant_id,
                event.organization_id,
                event.stream.root.stream_id,
                event.shard,
                event.position,
                encode(event),
            )
            for event in streams.held
        ]
        await connection.executemany(sql.HOLD_EVENT, rows)
    if streams.mended or streams.broken:
        await connection.execute(sql.LET_GO, shard)
    return True


async def write_broken(connection: Connection | asyncpg.Connection, broken: Iterable[BrokenStream]) -> None:
    """Record that streams stand still; of one that stood there before it is kept since when."""
    await connection.executemany(
        sql.SET_BROKEN,
        [
            (
                one.tenant_id, one.organization_id, one.stream_id, one.shard, one.position, one.event_id, one.sha256,
                one.code, one.message,
            )
            for one in broken
        ],
    )  # fmt: skip


async def held_events(database: Database, broken: BrokenStream) -> AsyncIterator[Event]:
    """Give the events that a broken stream has kept back, from where it stands on."""
    position = broken.position
    while True:
        async with database.transaction(None, "projector") as connection:
            rows = await connection.fetch(
                sql.HELD_EVENTS,
                broken.shard,
                broken.tenant_id,
                broken.organization_id,
                broken.stream_id,
                position,
                _PAGE,
            )
        for row in rows:
            yield decode(row["event"])
        if len(rows) < _PAGE:
            return
        position = rows[-1]["position"] + 1
