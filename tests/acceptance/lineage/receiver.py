"""A server that takes OpenLineage events, and one that fails at first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Receiver:
    """Keeps what it was sent; `failures` are the answers it gives before it takes anything."""

    def __init__(self, failures: list[int] | None = None) -> None:
        self.failures = failures or []
        self.events: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        """Take one event, or fail."""
        self.tokens.add(request.headers.get("Authorization"))
        if self.failures:
            return web.Response(status=self.failures.pop(0), text="not now")
        self.events.append(await request.json())
        return web.Response(status=201)


@asynccontextmanager
async def receiving(failures: list[int] | None = None) -> AsyncIterator[Receiver]:
    """Serve on the loopback for the time of the block."""
    receiver = Receiver(failures)
    app = web.Application()
    app.router.add_post("/api/v1/lineage", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}/api/v1/lineage"
    try:
        yield receiver
    finally:
        await runner.cleanup()
