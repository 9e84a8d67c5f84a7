"""Evaluates rules and sends messages in a process of its own: `process.py URL HOME`. The fault points armed kill it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.alerts.alert_runtime import opened, work


async def drive(url: str, home: str) -> None:
    """Do everything that waits in the database, once."""
    async with opened(url, Path(home)) as runtime:
        await work(runtime)


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
