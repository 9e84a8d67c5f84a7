"""What wakes a projector: notifications where there are any, or else the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Listener(Protocol):
    """Tells that shards grew."""

    async def wait(self) -> set[int] | None:
        """Wait for news; return the shards that grew, or None when it is time to look at all."""
        ...


Listen = Callable[[], AbstractAsyncContextManager[Listener]]
"""Opens a listener, such as `lambda: listening(database, "projector", poll_seconds)`."""


class look_each_second:  # noqa: N801 - reads as what it does where a listener is opened
    """A listener without notifications."""

    async def __aenter__(self) -> look_each_second:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def wait(self) -> None:
        """Say after a second that it is time to look."""
        await asyncio.sleep(1.0)
