"""A task engine in a process of its own: `process.py URL HOME`. Says `ready`, ends on SIGTERM.

The fault points armed in its environment kill it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.tasks.driven_tasks import open_engine

from noetl.testing.stuck import tell_when_asked


async def drive(url: str, home: str) -> None:
    """Do everything that waits in the database until told to stop."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tell_when_asked()
    async with open_engine(url, Path(home), works=True):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await told.wait()


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
