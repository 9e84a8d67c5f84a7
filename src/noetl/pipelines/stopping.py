"""How an operator hears that it should end soon, with what it has: its worker is to stop, and its turn would take long."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

_asked: ContextVar[asyncio.Event] = ContextVar("noetl_stop_asked")


def stop_asked() -> asyncio.Event:
    """Return what is set when the attempt under way should end soon; an operator that does not look is stopped later."""
    return _asked.get()


def may_be_asked(asked: asyncio.Event) -> None:
    """Let what the running asyncio task does from now on hear through this event."""
    _asked.set(asked)
