"""Addresses that an author writes to have a server ask itself, its network or its cloud, and servers that trick those who ask."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

FORBIDDEN: Final = (
    "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/",
    "http://0x7f000001:{port}/", "http://0177.0.0.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::7f00:1]:{port}/", "http://0.0.0.0:{port}/", "http://169.254.169.254/latest/meta-data/",
    "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://[64:ff9b::a9fe:a9fe]/", "http://10.0.0.1/",
    "http://192.168.1.1/", "http://100.64.0.1/", "http://user:pass@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@public/",
)  # fmt: skip
"""Every way to write an address that a server must not be made to ask; `{port}` is where something listens."""


class Listening:
    """A server that counts who reaches it, and answers what it is told to."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.port = 0
        self.answer: Callable[[web.Request], web.StreamResponse] = lambda request: web.json_response(
            {"access_token": "canary-token", "expires_in": 60}
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Count and answer."""
        self.reached.append(f"{request.method} {request.path}")
        return self.answer(request)


@asynccontextmanager
async def listening(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Listening]:
    """Listen on an address of this machine for the time of the block."""
    own = Listening()
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", own.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        own.port = runner.addresses[0][1]
        yield own
    finally:
        await runner.cleanup()


class Rebinding:
    """Name service of an attacker: a name stands for another address each time it is looked up."""

    def __init__(self, name: str, *addresses: str) -> None:
        self.name = name
        self.asked = 0
        self._addresses = addresses
        self._true = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer in the place of `socket.getaddrinfo`."""
        if host != self.name:
            return self._true(host, port, *args, **kwargs)
        address = self._addresses[min(self.asked, len(self._addresses) - 1)]
        self.asked += 1
        return self._true(address, port, *args, **kwargs)
