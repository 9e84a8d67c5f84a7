"""The `mcp` tool: one request to a server per task; its result, or its error as a problem, comes back."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import msgspec

from noetl.engine.tools.http.auth import BadAuth
from noetl.engine.tools.http.response import problem_of_error, problem_of_status
from noetl.engine.tools.mcp.messages import Asked, NotJsonRpc, Refused, answered, asked_by, text_of
from noetl.engine.tools.mcp.over_http import BadStatus
from noetl.engine.tools.mcp.over_stdio import ServerEnded
from noetl.engine.tools.mcp.server import Server, server_of
from noetl.engine.tools.outcome import Outcome, ProblemKind, failed, refusal
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.errors import NoetlError

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


_SOURCE: Final = "mcp"
_SHOWN: Final = 2_000
_BY_CODE: Final[dict[int, tuple[ProblemKind, bool]]] = {
    -32700: ("parse", False),
    -32600: ("client_error", False),
    -32601: ("not_found", False),
    -32602: ("client_error", False),
    -32603: ("server_error", True),
    -32002: ("not_found", False),
}


def of_tool(tool: str | None, text: str, data: Any) -> Outcome:
    """Return the failure that an answer with `isError` is; the answer stays readable."""
    message = f"the tool {tool} failed: {text[:_SHOWN] or 'it does not say why'}"
    return failed("unknown", message, source=_SOURCE, code="tool_error", data=data)


def of_error(error: Exception, where: str, seconds: float) -> Outcome:
    """Return the failure an error stands for; what is a defect of our own is raised again."""
    match error:
        case Refused():
            kind, again = _BY_CODE.get(error.code, ("server_error", False))
            details = {} if error.data is None else {"data": error.data}
            message = f"{where} refused: {error.message[:_SHOWN]}"
            return failed(
                kind, message, source=_SOURCE, code=f"rpc_{abs(error.code)}", retryable=again, details=details
            )
        case NotJsonRpc():
            return failed("parse", f"{where}: {error}", source=_SOURCE, code="not_json_rpc")
        case BadStatus():
            problem = problem_of_status(error.status, error.reason, where, error.headers)
            return Outcome(status="error", error=msgspec.structs.replace(problem, source=_SOURCE))
        case ServerEnded():
            message = f"{where} ended with exit code {error.exit_code} before it answered"
            return failed(
                "unknown",
                message,
                source=_SOURCE,
                code="process_died",
                retryable=True,
                details={"stderr": error.printed},
            )
        case NoetlError() if not isinstance(error, BadAuth):
            return refusal(error, _SOURCE)
    return Outcome(
        status="error", error=msgspec.structs.replace(problem_of_error(error, where, seconds), source=_SOURCE)
    )
