"""Runs the application on a socket in the current event loop until it is cancelled, and then drains."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.applications import Starlette

from noetl.errors import ConfigError, Unavailable

DRAIN_SECONDS = 15
"""How long requests under way may take once the server stops."""


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller and tells when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self._ready()


async def serve(
    app: Starlette, host: str, port: int, *, auth_configured: bool, ready: Callable[[int], None] = lambda port: None
) -> None:
    """Serve until cancelled; `ready` gets the port once requests are taken. Cancelling ends what waits and drains the rest."""
    if not auth_configured and not is_loopback(host):
        raise ConfigError(
            f"refusing to listen on {host} without tokens: anybody who can reach it could run code here",
            hint="make a token with `noetl credentials token create`, or listen on 127.0.0.1",
        )
    listening = _bound(host, port)
    number: int = listening.getsockname()[1]
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = _Server(config, lambda: ready(number))
    stopping: asyncio.Event = app.state.services.stopping
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]), name="noetl-api")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stopping.set()
        server.should_exit = True
        await task
        raise
    finally:
        listening.close()


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise ConfigError(f"{host!r} is no address to listen on: {problem}") from problem
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as problem:
        made.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {problem.strerror}", hint="another process may have the port"
        ) from problem
    made.setblocking(False)  # noqa: FBT003 - the standard library takes it so
    return made
