"""Ends tasks that speak to a server: they are cancelled until they have ended."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_AGAIN_SECONDS: Final = 0.2


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and return when all have ended, whatever came of them.

    A cancellation that comes together with an answer is swallowed by `asyncio.wait_for` before Python 3.12, which clients of
    NATS wait with; a task that goes round for ever would go on, and whoever waits for its end would wait for ever.

    The caller may itself be cancelled here, also more than once when it is ended by this very function. It is told when the
    tasks have ended: a task left behind would hold up the end of the event loop.
    """
    pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=_AGAIN_SECONDS)
        except asyncio.CancelledError as ours:
            cancelled = ours
        pending = {task for task in pending if not task.done()}
    for task in tasks:
        # An error that nobody asks for would be logged when the task is forgotten.
        if not task.cancelled():
            task.exception()
    if cancelled is not None:
        raise cancelled
