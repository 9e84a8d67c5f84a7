"""Wake-ups through PostgreSQL: a signal within the process, and NOTIFY for the others, coalesced and after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final

from noetl.engine.dispatch.polling import Signal
from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import LOST, Database
from noetl.model.stream import Scope
from noetl.pipelines.tasks.wakeups.port import Wakeup

CHANNEL: Final = "noetl_tasks"
GATHER_SECONDS: Final = 0.02
"""Wake-ups within this time share one notification."""
AGAIN_SECONDS: Final = 1.0


class PostgresWakeups:
    """Touches `signal` for everybody of this process, and notifies those of other processes."""

    def __init__(self, database: Database, signal: Signal) -> None:
        self._database = database
        self._signal = signal
        self._noted = False
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    async def wake(self, scope: Scope, tasks: Sequence[Wakeup]) -> None:
        """Wake all who wait for tasks."""
        self._signal.touch()
        self._noted = True
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name="noetl-task-wakeups")

    def listen(self) -> None:
        """Touch the signal whenever another process wakes workers, until closed."""
        self._listener = asyncio.create_task(self._hear(), name="noetl-task-listener")

    def awaited(self, runtimes: Sequence[str]) -> AbstractContextManager[None]:
        """Change nothing: everybody hears every notification, whoever waits."""
        return nullcontext()

    async def close(self) -> None:
        """Stop listening and send what is noted."""
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
        if self._sender is not None:
            await self._sender

    async def _send(self) -> None:
        while self._noted:
            self._noted = False
            with suppress(*LOST, Unavailable):
                pool = await self._database.pool()
                await pool.execute("SELECT pg_notify($1, '')", CHANNEL)
            await asyncio.sleep(GATHER_SECONDS)

    async def _hear(self) -> None:
        while True:
            with suppress(*LOST, Unavailable):
                connection = await self._database.connect()
                gone = asyncio.Event()
                try:
                    connection.add_termination_listener(lambda _, gone=gone: gone.set())
                    await connection.add_listener(CHANNEL, self._heard)
                    self._signal.touch()
                    await gone.wait()
                finally:
                    with suppress(*LOST):
                        await connection.close(timeout=2)
            await asyncio.sleep(AGAIN_SECONDS)

    def _heard(self, *_: Any) -> None:
        self._signal.touch()
