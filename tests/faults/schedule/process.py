"""A scheduler in a process of its own: `process.py URL HOME`. Ends on SIGTERM; fault points armed in its environment kill it.

With `make` as a third word, one schedule is made by hand instead.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.schedule.driven_scheduler import open_scheduler, plan_missed

from noetl.testing.stuck import tell_when_asked


async def drive(url: str, home: str) -> None:
    """Run what is due until told to stop."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tell_when_asked()
    async with open_scheduler(url, Path(home), ticks=True):
        await told.wait()


async def make(url: str, home: str) -> None:
    """Make a schedule."""
    async with open_scheduler(url, Path(home)) as (driven, scheduler):
        await plan_missed(driven, scheduler, 1)


if __name__ == "__main__":
    asyncio.run((make if sys.argv[3:] == ["make"] else drive)(*sys.argv[1:3]))
