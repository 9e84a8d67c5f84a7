"""An engine in a process of its own: `process.py URL HOME SLOTS REAPS`, both numbers. Says `ready`, ends on SIGTERM.

The fault points armed in its environment stop or kill it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from noetl.testing.engines.short_leases import open_short_leased
from noetl.testing.stuck import tell_when_asked


async def drive(url: str, home: str, slots: str, reaps: str) -> None:
    """Do the work that waits in the database, take back what others lost, or both, until told to stop."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tell_when_asked()
    async with open_short_leased(url, Path(home), slots=int(slots), reaps=bool(int(reaps)), role="driver"):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await told.wait()


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
