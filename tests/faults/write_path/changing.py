"""Changes the write path in a process of its own: `changing.py URL HOME NATS PREFIX WAY`; says when it is changed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.write_path.stream_writer import settings_of

from noetl.runtime.wiring import open_runtime
from noetl.runtime.write_path.movers import open_write_path


async def change(url: str, home: str, nats: str, prefix: str, way: str) -> None:
    """Let events take a way, unless the fault point that is armed kills this process."""
    settings = settings_of(url, Path(home), nats, prefix, way)
    async with open_runtime(settings) as runtime, open_write_path(runtime, "changing"):
        sys.stdout.write("changed\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(change(*sys.argv[1:]))
