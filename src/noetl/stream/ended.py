"""Ends tasks that speak to a server: they are cancelled until they have ended."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_AGAIN_SECONDS: Final = 0.2


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and return when all have ended, whatever came of them.

    A cancellation that comes together with an answer is swallowed by `asyncio.wait_for` before Python 3.12, which clients of
    NATS wait with; a task that goes round for ever would go on, and whoever waits for its end would wait for ever.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
