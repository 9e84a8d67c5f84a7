"""`noetl node-broker`: keeps tables in anonymous memory for the processes of a node, until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import click

from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings


@click.command("node-broker")
@click.pass_context
def node_broker(ctx: click.Context) -> None:
    """Hand out shared memory between the processes of a node, until SIGTERM or Ctrl-C.

    For pods whose processes share a socket but no /dev/shm: set payload_store.cache.tier_15_carrier to memfd and
    tier_15_broker to a socket all of them see. Only processes of the same user are answered. Whoever does not find the
    broker reads the next tier.

    \b
    Examples:
      noetl node-broker
      NOETL_PAYLOAD_STORE__CACHE__TIER_15_BROKER=/run/noetl/broker.sock noetl node-broker
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return _running(settings, stopping)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _running(settings: Settings, stopping: Stopping) -> AsyncIterator[None]:
    from noetl.runtime.node_broker import open_broker

    async with open_broker(settings, stopping) as path:
        tell(f"listening on {path}")
        yield
