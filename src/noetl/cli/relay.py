"""`noetl relay`: brings committed events to the stream for the shards it holds, until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import click

from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings


@click.command()
@click.pass_context
def relay(ctx: click.Context) -> None:
    """Publish committed events to the stream, sharing the shards with the other relays, until SIGTERM or Ctrl-C.

    Each shard is published by one relay at a time, in the order of its positions, from where the last one stopped. A
    stream that was wiped is filled again from the ledger. The first signal finishes the batch under way, the second
    stops at once: nothing is lost then, some events are published again and recognised by their ids.

    \b
    Examples:
      noetl relay
      noetl stream status
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.relay import check_relayed
    from noetl.runtime.service import run_role

    settings = load_settings()
    check_relayed(settings)

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return _running(settings, stopping)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _running(settings: Settings, stopping: Stopping) -> AsyncIterator[None]:
    from noetl.runtime.relay import open_relay, relay_name
    from noetl.runtime.role_metrics import open_relay_metrics
    from noetl.runtime.service import ended_early
    from noetl.runtime.wiring import open_runtime

    tell(f"relaying as {relay_name(settings)}")
    async with open_runtime(settings, "relay") as runtime, open_relay_metrics(runtime, tell) as (metrics, relayed):

        def changed(shards: frozenset[int]) -> None:
            metrics.hold(shards)
            tell("shards: " + (" ".join(map(str, sorted(shards))) or "none"))

        async with open_relay(runtime, meter=relayed, told=changed) as task:
            ended_early(task, stopping, "the relay")
            yield
