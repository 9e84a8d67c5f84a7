"""The node broker as a role: opened on its socket, served by a thread, closed with the role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from noetl.errors import ConfigError, Unsupported
from noetl.payloads.broker import Broker
from noetl.payloads.memfd import is_available
from noetl.runtime.fabric import MIB, broker_socket
from noetl.runtime.service import Stopping, ended_early
from noetl.runtime.settings import Settings


@asynccontextmanager
async def open_broker(settings: Settings, stopping: Stopping) -> AsyncIterator[Path]:
    """Serve the node's socket for the time of the block."""
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
        yield path
    finally:
        broker.stop()
        await serving
