"""The role `node-broker`: keeps tables in anonymous memory for the processes of a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from noetl.errors import ConfigError, Unsupported
from noetl.kernel.payloads.shared_memory.broker import Broker
from noetl.kernel.payloads.shared_memory.memfd import is_available
from noetl.runtime.config import load_settings
from noetl.runtime.payloads.tiers import MIB, broker_socket
from noetl.runtime.service import Stopping, ended_early, run_role
from noetl.runtime.settings.declaration import Settings


def run_node_broker(tell: Callable[[str], None]) -> int:
    """Hand out memory on the node's socket until a signal ends the process."""
    settings = load_settings()
    return run_role(lambda stopping: _running(settings, stopping, tell), tell)


@asynccontextmanager
async def _running(settings: Settings, stopping: Stopping, tell: Callable[[str], None]) -> AsyncIterator[None]:
    if not is_available():
        raise Unsupported("this system has no anonymous memory to hand out", hint="set tier_15_carrier to posix")
    path = broker_socket(settings)
    try:
        broker = Broker(path, settings.payload_store.cache.tier_15_node_budget_mb * MIB)
    except OSError as problem:
        raise ConfigError(
            f"the broker cannot listen on {path}: {problem}", hint="choose another payload_store.cache.tier_15_broker"
        ) from problem
    serving = asyncio.create_task(asyncio.to_thread(broker.serve), name="noetl-node-broker")
    ended_early(serving, stopping, "the node broker")
    try:
        tell(f"listening on {path}")
        yield
    finally:
        broker.stop()
        await serving
