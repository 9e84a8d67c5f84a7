"""The role `relay`: publishes committed events to the stream for the shards it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from noetl.runtime.config import load_settings
from noetl.runtime.metrics.roles import open_relay_metrics
from noetl.runtime.service import Stopping, ended_early, run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.streams.relay import check_relayed, open_relay, relay_name
from noetl.runtime.wiring import open_runtime


def run_relay(tell: Callable[[str], None]) -> int:
    """Publish until a signal ends the process; settings without a stream are refused at once."""
    settings = load_settings()
    check_relayed(settings)
    return run_role(lambda stopping: _running(settings, stopping, tell), tell)


@asynccontextmanager
async def _running(settings: Settings, stopping: Stopping, tell: Callable[[str], None]) -> AsyncIterator[None]:
    tell(f"relaying as {relay_name(settings)}")
    async with open_runtime(settings, "relay") as runtime, open_relay_metrics(runtime, tell) as (metrics, relayed):

        def changed(shards: frozenset[int]) -> None:
            metrics.hold(shards)
            tell("shards: " + (" ".join(map(str, sorted(shards))) or "none"))

        async with open_relay(runtime, meter=relayed, told=changed) as task:
            ended_early(task, stopping, "the relay")
            yield
