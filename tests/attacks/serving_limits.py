"""A small application behind the limits of connections: in this process, or in one of its own whose memory can be measured."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from noetl.api.connections.limits import ConnectionLimits
from noetl.api.connections.listening import QuietServer, bound
from noetl.api.connections.protocol import protocol_of
from noetl.api.connections.room import Room

LARGE = 32 * 1024 * 1024


@dataclass
class Served:
    """A running server, what it was asked and what it ended."""

    port: int
    room: Room
    ended: Counter[str]
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first connection was ended."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody was gone before the answer."""
    seen: list[tuple[str, int, list[str]]] = field(default_factory=list)
    """Of each whole request its path, the size of its body and the names of its headers."""

    def app(self) -> Starlette:
        """Make the application."""

        async def any_path(request: Request) -> Response:
            size = 0
            try:
                async for piece in request.stream():
                    size += len(piece)
            except ClientDisconnect:
                self.left.set()
                return Response(status_code=400)
            self.seen.append((request.url.path, size, list(request.headers)))
            return PlainTextResponse(f"{size}\n")

        async def wait(request: Request) -> Response:
            self.waiting.set()
            gone = asyncio.create_task(self._until_gone(request))
            await asyncio.wait((gone, asyncio.create_task(self.go_on.wait())), return_when="FIRST_COMPLETED")
            return PlainTextResponse("done\n")

        async def stream(_: Request) -> Response:
            async def pieces() -> AsyncIterator[bytes]:
                yield b"first\n"
                self.waiting.set()
                await self.go_on.wait()
                yield b"last\n"

            return StreamingResponse(pieces())

        async def large(_: Request) -> Response:
            return Response(b"x" * LARGE)

        everywhere = Route("/{rest:path}", any_path, methods=["GET", "POST", "OPTIONS", "CONNECT"])
        return Starlette(routes=[Route("/wait", wait), Route("/stream", stream), Route("/large", large), everywhere])

    async def _until_gone(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.left.set()


@asynccontextmanager
async def serving(limits: ConnectionLimits) -> AsyncIterator[Served]:
    """Serve for the time of the block."""
    ended: Counter[str] = Counter()

    def count(reason: str) -> None:
        ended[reason] += 1
        served.has_ended.set()

    room = Room(limits, count)
    listening = bound("127.0.0.1", 0)
    served = Served(listening.getsockname()[1], room, ended)
    ready = asyncio.Event()
    config = uvicorn.Config(
        served.app(),
        http=protocol_of(limits, room),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = QuietServer(config, ready.set)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    await ready.wait()
    try:
        yield served
    finally:
        served.go_on.set()
        server.should_exit = True
        await task
        listening.close()


async def _main() -> None:
    async with serving(ConnectionLimits()) as served:
        sys.stdout.write(f"{served.port}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main())
