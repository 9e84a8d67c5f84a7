"""Changes of data in a process of its own: `process.py URL HOME WHAT`. Does one thing, or works until SIGTERM.

The fault points armed in its environment kill it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.changes.changing_engine import open_changing

from noetl.testing.stuck import tell_when_asked


async def drive(url: str, home: str, what: str) -> None:
    """Do what is asked for."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tell_when_asked()
    async with open_changing(url, Path(home), works=what == "work") as changing:
        if what == "work":
            await told.wait()
        else:
            await changing.act(what)


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
