"""A server of the Model Context Protocol made with the official SDK: over standard input and output, or over HTTP.

`stdio` serves whoever started it. `http` prints two ports, one that answers with streams of events and one with JSON.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

TOKEN = b"Bearer open-sesame"


def tell(place: str, numbers: str) -> None:
    """Write a line to a pipe that somebody reads."""
    Path(place).write_text(f"{numbers}\n")


def made() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("of-the-tests", version="7", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    @server.tool()
    def fail(reason: str) -> str:
        """Fail."""
        raise ToolError(reason)

    @server.tool()
    def environment() -> dict[str, str]:
        """Tell what the server knows of its environment."""
        return dict(os.environ)

    @server.tool()
    async def hang(place: str) -> str:
        """Write the number of this process and of one it starts to a pipe, and never answer; tell of being cancelled."""
        child = await asyncio.create_subprocess_exec("sleep", "600")
        tell(place, f"{os.getpid()} {child.pid}")
        try:
            await asyncio.Event().wait()
        finally:
            child.kill()
            tell(place, "0")
        return "never"

    @server.resource("notes://one")
    def one() -> str:
        """A note."""
        return "the first note"

    @server.prompt()
    def greeting(name: str) -> str:
        """A greeting."""
        return f"Good day, {name}"

    return server


def guarded(app: Any) -> Any:
    """Ask for a token where the address says so, and answer 503 where it says so."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        query = scope.get("query_string", b"")
        status = 503 if query == b"busy" else 401 if query == b"private" else 0
        if status == 0 or (status == 401 and dict(scope["headers"]).get(b"authorization") == TOKEN):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": [(b"retry-after", b"3")]})
        await send({"type": "http.response.body", "body": b""})

    return serve


async def over_http() -> None:
    serving = []
    for json_response in (False, True):
        held = socket.create_server(("127.0.0.1", 0))
        sys.stdout.write(f"{held.getsockname()[1]}\n")
        app = guarded(made().streamable_http_app(json_response=json_response))
        config = uvicorn.Config(app, log_level="error", lifespan="on")
        serving.append(uvicorn.Server(config).serve(sockets=[held]))
    sys.stdout.flush()
    await asyncio.gather(*serving)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(over_http())
    else:
        made().run("stdio")
