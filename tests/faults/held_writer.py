"""A writer in a process of its own: appends events one decision at a time and prints the id of each acknowledged one.

Called with a database URL, a stream id and a count. The fault points armed in its environment stop, slow or kill it.
"""

from __future__ import annotations

import asyncio
import sys
import time

from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts


async def write(url: str, stream_id: str, count: int, idle_seconds: float) -> int:
    """Append and acknowledge; a refusal by the server ends it with code 3."""
    scope = Scope("default", "default")
    stream = scope.stream(stream_id)
    assert stream.execution_id is not None
    drafts = Drafts(scope, SnowflakeGenerator(1000, lambda: time.time_ns() // 1_000_000).mint)
    database = Database(url, as_roles=True, idle_in_transaction_seconds=idle_seconds)
    ledger = PostgresLedger(database)
    try:
        for number in range(count):
            draft = drafts.execution(stream.execution_id, "step.entered", node_name=f"held-{number}")
            async with ledger.decision(scope) as decision:
                # Leaves a lock on the table until the transaction ends, on which the test can wait for that end.
                await decision.connection.execute("SELECT FROM noetl.shard")
                await decision.append(stream, [draft])
            sys.stdout.write(f"{draft.event_id}\n")
            sys.stdout.flush()
    except NoetlError as problem:
        sys.stderr.write(f"{problem.code}: {problem}\n")
        return 3
    finally:
        await database.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
