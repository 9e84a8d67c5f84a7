"""What a role without an API tells over HTTP: its metrics go in, `/metrics` and `/health` come out on the port of the settings.

Nothing listens unless a port is set. It ends with the role, and the role never waits for whoever asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from noetl import __version__
from noetl.errors import ConfigError
from noetl.runtime.server_limits import limits_of
from noetl.runtime.settings.declaration import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

DRAIN_SECONDS: Final = 2
"""How long an answer under way may take once the role stops."""


class Exposed(Protocol):
    """Metrics that can be printed."""

    async def exposition(self) -> tuple[bytes, str]:
        """Return the text of all metrics and its media type."""
        ...


@asynccontextmanager
async def open_endpoint(
    settings: Settings, role: str, metrics: Exposed, said: Callable[[str], None]
) -> AsyncIterator[None]:
    """Answer for the time of the block, if the settings name a port; `said` is told the address."""
    own = settings.runtime
    if own.metrics_port is None:
        yield
        return
    # Imported here: a role that tells nothing needs no server.
    import uvicorn

    from noetl.api.connections.listening import QuietServer, bound, is_loopback, shown_url
    from noetl.api.connections.protocol import protocol_of
    from noetl.api.connections.room import Room

    if not own.metrics_open and not is_loopback(own.metrics_host):
        raise ConfigError(
            f"refusing to show metrics on {own.metrics_host}: anybody who can reach it could read them",
            hint="set runtime.metrics_open (NOETL_RUNTIME__METRICS_OPEN=true) if that is meant, or use 127.0.0.1",
        )
    listening = bound(own.metrics_host, own.metrics_port)
    limits = limits_of(settings)
    config = uvicorn.Config(
        _app(role, metrics),
        http=protocol_of(limits, Room(limits)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    ready = asyncio.Event()
    server = QuietServer(config, ready.set)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]), name="noetl-metrics")
    try:
        await ready.wait()
        said(f"metrics on {shown_url(own.metrics_host, listening.getsockname()[1])}/metrics")
        yield
    finally:
        server.should_exit = True
        await serving
        listening.close()


def _app(role: str, metrics: Exposed) -> Starlette:
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def tell_metrics(_: Request) -> Response:
        text, media_type = await metrics.exposition()
        return Response(text, media_type=media_type)

    async def tell_health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__, "role": role})

    return Starlette(routes=[Route("/metrics", tell_metrics), Route("/health", tell_health)])
