"""The `mcp` tool: a request goes to a server over HTTP or to a process of its own, its result comes back.

The server is greeted for each task, and what it keeps for the task ends with it: the session, or the process group.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from noetl.execute.outcome import Outcome, failed
from noetl.execute.plain import plain
from noetl.execute.tools.mcp.asking import Asked, answered, asked_by, text_of
from noetl.execute.tools.mcp.problems import of_error, of_tool
from noetl.execute.tools.mcp.server import Server, server_of
from noetl.execute.tools.port import Call
from noetl.execute.tools.shell_process import ahead_of

DEFAULT_SECONDS = 60.0


class McpTool:
    """Asks servers of the Model Context Protocol."""

    kind: ClassVar[str] = "mcp"

    async def run(self, call: Call) -> Outcome:
        """Ask what one call asks; an answer with `isError` is a failure."""
        seconds = call.timeout or DEFAULT_SECONDS
        where, server = "the mcp task", None
        try:
            asked = asked_by(call)
            async with asyncio.timeout(ahead_of(seconds)):
                server = await server_of(call)
                where = server.place
                result = await _result(call, server, asked)
        except OSError as error:
            if server is None or server.url is not None or isinstance(error, TimeoutError):
                return of_error(error, where, seconds)
            message = f"{where} cannot be started: {error.strerror}"
            return failed("unknown", message, source=self.kind, code="process_not_started")
        except Exception as error:
            return of_error(error, where, seconds)
        data = _data(server, asked, result)
        if isinstance(result, dict) and result.get("isError") is True:
            return of_tool(asked.tool, data["text"], data)
        return Outcome(data=data)


async def _result(call: Call, server: Server, asked: Asked) -> Any:
    channel = await server.open(call)
    try:
        return plain(await answered(channel, asked, call.options))
    finally:
        await channel.aclose()


def _data(server: Server, asked: Asked, result: Any) -> dict[str, Any]:
    structured = result.get("structuredContent") if isinstance(result, dict) else None
    return {
        "server": server.name or server.endpoint,
        "endpoint": server.endpoint,
        "method": asked.method,
        "tool": asked.tool,
        "result": result,
        "structured": structured,
        "text": text_of(result),
    }
