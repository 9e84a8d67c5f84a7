"""Retention in a process of its own: `process.py URL HOME`. It lets go of everything that nothing needs, at once.

The fault points armed in its environment kill it.
"""

from __future__ import annotations

import asyncio
import sys

from noetl.runtime.assembly.retention import carried_out, open_retention
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime
from noetl.services.retention.plan import KINDS

AT_ONCE = {
    "as_of_days": 0, "generation_days": 0, "keep_generations": 0, "grace_hours": 0, "staging_days": 0, "task_days": 0,
    "outbox_days": 0,
}  # fmt: skip


async def run(url: str, home: str) -> None:
    """Plan and carry out."""
    settings = Settings.model_validate({"runtime": {"home": home}, "database": {"url": url}})
    async with open_runtime(settings) as runtime:
        await carried_out(open_retention(runtime), [kind for kind in KINDS if kind != "archives"], AT_ONCE)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
