"""Leases kept from a thread: they last while the loop of the rows is held up, and a lost one is told there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from noetl.engine.dispatch.grants import LeaseRef
from noetl.spark.frames.slot import KeeperThread

LEASE = LeaseRef("frame", 1, "2", 1, "token")


class Renewals:
    """Renews leases until one is said to be lost."""

    def __init__(self) -> None:
        self.beaten = threading.Event()
        self.is_lost = False

    async def heartbeat(self, leases: Sequence[LeaseRef]) -> list[LeaseRef]:
        """Take note of a beat."""
        self.beaten.set()
        return list(leases) if self.is_lost else []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Renewals]:
        """Be at hand."""
        yield self


async def test_leases_are_renewed_while_the_rows_hold_up_their_loop() -> None:
    renewals = Renewals()
    keeper = KeeperThread(renewals.connect, every_seconds=0.02)
    keeper.start()
    keeper.hold(LEASE, 60, lambda: None)
    # Waited for without letting the event loop run.
    assert renewals.beaten.wait(10)
    await keeper.stop()


async def test_a_lost_lease_is_told_where_the_rows_run() -> None:
    renewals = Renewals()
    renewals.is_lost = True
    keeper = KeeperThread(renewals.connect, every_seconds=0.02)
    keeper.start()
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    keeper.hold(LEASE, 60, lambda: told.set_result(threading.get_ident()))
    async with asyncio.timeout(10):
        assert await told == threading.get_ident()
    await keeper.stop()
