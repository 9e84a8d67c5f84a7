"""Engine and worker on short leases, for tests that kill, pause and replace the processes that hold them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noetl.engine.dispatch.engine import Engine
from noetl.engine.dispatch.stores import postgres_stores
from noetl.engine.plan.limits import MAX_CHILD_DEPTH
from noetl.engine.tools.registry import known_kinds
from noetl.runtime.assembly.engine import open_worker, producer_of
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import Runtime, open_runtime

LEASE_SECONDS = 2.0
REAP_SECONDS = 0.2
WAIT_SECONDS = 60.0
"""How long a test waits for what other processes do; they send no signal, so one looks."""
LOOK_SECONDS = 0.05
IDLE_SECONDS = 0.5
"""How long an execution may stand still before it is pushed on."""


async def until(holds: Callable[[], Awaitable[Any]], what: str, within: float = WAIT_SECONDS) -> Any:
    """Look again and again until something holds that other processes bring about, and return what it gave."""
    try:
        async with asyncio.timeout(within):
            while True:
                found = await holds()
                if found:
                    return found
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{within:g} s went by without {what}") from None


@dataclass(frozen=True)
class Driven:
    """One process's engine and what it is connected to."""

    runtime: Runtime
    engine: Engine


@asynccontextmanager
async def open_short_leased(
    url: str,
    home: Path,
    *,
    slots: int = 0,
    reaps: bool = False,
    role: str = "test",
    max_child_depth: int = MAX_CHILD_DEPTH,
) -> AsyncIterator[Driven]:
    """Give an engine on a database, with a worker if it has slots, and with a reaper if asked for."""
    settings = Settings.model_validate({"runtime": {"home": str(home)}, "database": {"url": url}})
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings))
        engine = Engine(
            postgres_stores(runtime.database, runtime.ledger),
            runtime.ledger,
            runtime.payloads,
            runtime.ids.mint,
            runtime.ids.mint_many,
            producer_of(runtime, role),
            kinds=tuple(sorted(known_kinds())),
            reap_every_seconds=REAP_SECONDS,
            idle_seconds=IDLE_SECONDS,
            command_lease_seconds=LEASE_SECONDS,
            max_child_depth=max_child_depth,
        )
        stack.push_async_callback(engine.close)
        if reaps:
            engine.reaper.start()
        if slots:
            await stack.enter_async_context(open_worker(runtime, engine.dispatch(runtime.scope), slots=slots))
        yield Driven(runtime, engine)
