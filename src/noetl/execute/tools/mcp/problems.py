"""Failed requests to a server put as outcomes: an error goes in, a problem in words a policy can decide on comes out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.execute.outcome import Outcome, ProblemKind, failed
from noetl.execute.tools.http_auth import BadAuth
from noetl.execute.tools.http_problems import problem_of_error, problem_of_status
from noetl.execute.tools.mcp.messages import NotJsonRpc, Refused
from noetl.execute.tools.mcp.over_http import BadStatus
from noetl.execute.tools.mcp.over_stdio import ServerEnded
from noetl.execute.tools.refusals import refusal

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
