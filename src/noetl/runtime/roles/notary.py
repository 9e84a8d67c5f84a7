"""The role `notary`: signs heads of the ledger in a process of its own, which may have the key alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from noetl.runtime.config import load_settings
from noetl.runtime.notary import notary_of, sign_on
from noetl.runtime.service import Stopping, ended_early, run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime

if TYPE_CHECKING:
    from noetl.kernel.ledger.chain.heads import Head


def run_notary(tell: Callable[[str], None]) -> int:
    """Sign heads until a signal ends the process."""
    settings = load_settings()
    return run_role(lambda stopping: _running(settings, stopping, tell), tell)


async def sign_once() -> list[Head]:
    """Sign a head of every shard that grew, and return them."""
    async with open_runtime(load_settings()) as runtime:
        return await (await notary_of(runtime)).round()


@asynccontextmanager
async def _running(settings: Settings, stopping: Stopping, tell: Callable[[str], None]) -> AsyncIterator[None]:
    async with open_runtime(settings, "projector") as runtime:
        tell(f"signing heads every {settings.event_store.heads.every_seconds} s")
        signing = asyncio.create_task(sign_on(runtime), name="noetl-notary")
        ended_early(signing, stopping, "the notary")
        try:
            yield
        finally:
            signing.cancel()
            with suppress(asyncio.CancelledError):
                await signing
