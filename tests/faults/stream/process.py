"""A relay in a process of its own: `process.py DATABASE_URL NATS_URL STREAM HOLDER`.

Ends on SIGTERM; fault points armed in its environment kill or stop it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.stream.stream_relay import open_relay

from noetl.kernel.ledger.postgres.database import Database
from noetl.testing.stuck import tell_when_asked


async def drive(database_url: str, nats_url: str, stream: str, holder: str) -> None:
    """Publish until told to stop."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tell_when_asked()
    database = Database(database_url, as_roles=True)
    async with open_relay(database, nats_url, stream, holder):
        await told.wait()
    await database.close()


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:5]))
