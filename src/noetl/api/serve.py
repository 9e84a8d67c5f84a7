"""Runs the API on a socket in the current event loop until it is cancelled, and then drains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvicorn

from noetl.api.app import make_app
from noetl.api.connections.listening import QuietServer, allow_many_connections, bound, is_loopback
from noetl.api.connections.protocol import protocol_of
from noetl.api.connections.room import Room
from noetl.api.services import Services
from noetl.errors import ConfigError

DRAIN_SECONDS = 15
"""How long requests under way may take once the server stops."""


async def serve(
    services: Services,
    host: str,
    port: int,
    *,
    auth_configured: bool,
    ready: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until cancelled; `ready` gets the port once requests are taken. Cancelling ends what waits and drains the rest."""
    if not auth_configured and not is_loopback(host):
        raise ConfigError(
            f"refusing to listen on {host} without tokens: anybody who can reach it could run code here",
            hint="make a token with `noetl credentials token create`, or listen on 127.0.0.1",
        )
    allow_many_connections()
    listening = bound(host, port)
    number: int = listening.getsockname()[1]
    limits = services.limits
    config = uvicorn.Config(
        make_app(services),
        http=protocol_of(limits, Room(limits, services.metrics.connection_ended)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = QuietServer(config, lambda: ready(number))
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]), name="noetl-api")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        services.stopping.set()
        server.should_exit = True
        await task
        raise
    finally:
        listening.close()
