"""Appends keyed events once through the group commit, in a process of its own, and prints the ids that stand."""

from __future__ import annotations

import asyncio
import sys
import time

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope, loop_stream
from noetl.testing.samples.drafts import Drafts


async def append(url: str, execution_id: int, loop_id: int, count: int) -> None:
    """Append `count` loop items; keys depend on the loop alone, so a second run repeats the first."""
    scope = Scope("default", "default")
    drafts = Drafts(scope, SnowflakeGenerator(1001, lambda: time.time_ns() // 1_000_000).mint)
    database = Database(url, as_roles=True)
    ledger = PostgresLedger(database)
    items = [
        drafts.loop_item(execution_id, loop_id, index, idempotency_key=f"{loop_id}/{index}") for index in range(count)
    ]
    answer = await ledger.append(loop_stream(scope, execution_id, loop_id), items)
    sys.stdout.write("\n".join(map(str, answer.event_ids)))
    await ledger.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(append(sys.argv[1], *map(int, sys.argv[2:])))
