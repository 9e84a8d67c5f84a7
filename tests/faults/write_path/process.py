"""Writes in a process of its own: `process.py URL HOME NATS PREFIX COUNT [once]`; prints the id of each acknowledged event."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.write_path.stream_writer import open_writer, settings_of


def say(event_id: int) -> None:
    sys.stdout.write(f"{event_id}\n")
    sys.stdout.flush()


async def write(url: str, home: str, nats: str, prefix: str, count: str, once: str = "") -> None:
    """Write, again and again or once, until the fault point that is armed kills this process."""
    async with open_writer(settings_of(url, Path(home), nats, prefix)) as writer:
        await writer.write(int(count), say)
        while not once:
            await writer.write(int(count), say)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(write(*sys.argv[1:]))
