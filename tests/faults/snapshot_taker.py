"""Takes a snapshot of one execution in a process of its own; payloads are in a directory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.objects.connect import Connection, open_object_store
from noetl.model.stream import Scope
from noetl.testing.engines.parity import connect


async def take(url: str, directory: str, execution_id: str) -> None:
    """Take it."""
    database = Database(url, as_roles=True)
    ledger = PostgresLedger(database)
    payloads = open_object_store(Connection(backend="local", path=Path(directory)))
    found = connect(database, ledger, payloads=payloads)
    snapshot = await found.replay.snapshots.take(Scope("default", "default"), int(execution_id))
    sys.stdout.write(str(snapshot.version))
    await ledger.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(take(*sys.argv[1:]))
