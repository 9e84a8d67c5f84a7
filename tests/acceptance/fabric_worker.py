"""A worker in a process of its own: `fabric_worker.py SETTINGS`, as JSON. Says `ready`, ends on SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys

from noetl.runtime.assembly.engine import open_engine, open_worker
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime


async def work(settings: Settings) -> None:
    """Work off what waits in the database until told to stop."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with (
        open_runtime(settings) as runtime,
        open_engine(runtime, "worker") as engine,
        open_worker(runtime, engine.dispatch(runtime.scope), slots=4),
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await told.wait()


if __name__ == "__main__":
    asyncio.run(work(Settings.model_validate_json(sys.argv[1])))
