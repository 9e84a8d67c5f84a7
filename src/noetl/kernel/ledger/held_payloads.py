"""Lists every payload that an organization's history needs, live and archived, so that each can be checked. Only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec

from noetl.errors import Corrupt, PayloadMissing
from noetl.kernel.ledger.archive.manifest import Payloads, archived_events
from noetl.kernel.ledger.archive.rows import archive_rows
from noetl.kernel.ledger.history import History
from noetl.kernel.ledger.port import LedgerReader
from noetl.kernel.ledger.postgres.database import Database
from noetl.model.event import Event
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import SHARD_COUNT, Scope

_HELD_BY_ROWS: Final = """
SELECT needed.ref, needed.holder FROM noetl.payload_hold AS h JOIN (
    SELECT manifest_ref AS ref, 'partition_version' AS holder FROM noetl.partition_version
    UNION ALL SELECT bundle_ref, 'dag_version' FROM noetl.dag_version
    UNION ALL SELECT inputs_ref, 'task' FROM noetl.task
    UNION ALL SELECT logs_ref, 'task' FROM noetl.task
) AS needed ON decode(needed.ref ->> 'sha256', 'hex') = h.digest
"""

Held = tuple[PayloadRef, str]
"""A reference and who holds it."""


async def held_by_execution(history: History, scope: Scope, execution_id: int) -> AsyncIterator[Held]:
    """Give what the events of one execution refer to."""
    async for event in history.read_execution(scope, execution_id):
        for held in _held(event):
            yield held


async def held_by_organization(
    database: Database, ledger: LedgerReader, payloads: Payloads, scope: Scope
) -> AsyncIterator[Held]:
    """Give what snapshots, archives, archived events and live events refer to; the same payload may come again."""
    async with database.transaction(scope) as connection:
        archives = [row for row in await archive_rows(connection) if not row.removed]
        rows = await connection.fetch(_HELD_BY_ROWS)
        snapshots = await connection.fetch("SELECT payload_ref, aggregate_type, aggregate_id FROM noetl.snapshot")
    for row in snapshots:
        ref = msgspec.json.decode(row["payload_ref"], type=PayloadRef)
        yield ref, f"snapshot of {row['aggregate_type']} {row['aggregate_id']}"
    for row in rows:
        yield msgspec.json.decode(row["ref"], type=PayloadRef), f"a row of {row['holder']}"
    for archive in archives:
        yield archive.manifest_ref, f"manifest of {archive.partition.name}"
        # What cannot be read was given to the caller just before, who finds out why; the rest is still given.
        with suppress(PayloadMissing, Corrupt):
            for found in (await archive.manifest(payloads)).objects:
                yield found.ref, f"archive of {archive.partition.name}"
                with suppress(PayloadMissing, Corrupt):
                    async for event in archived_events(payloads, scope, found, b'_ref"'):
                        for held in _held(event):
                            yield held
    for shard in range(SHARD_COUNT):
        async for event in ledger.read_shard(shard, scope=scope):
            for held in _held(event):
                yield held


def _held(event: Event) -> list[Held]:
    return [(ref, f"event {event.event_id}") for ref in (event.payload_ref, event.fields_ref) if ref is not None]
