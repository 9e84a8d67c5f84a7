"""The `http` tool: a request goes out, the response comes back with its body decoded."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

from noetl.execute.outcome import Outcome
from noetl.execute.tools.http_auth import NONE, Proof, prove
from noetl.execute.tools.http_client import answer
from noetl.execute.tools.http_problems import place, problem_of_error, problem_of_status, without_secrets
from noetl.execute.tools.http_request import build
from noetl.execute.tools.http_response import decode
from noetl.execute.tools.port import Call

DEFAULT_SECONDS = 60.0
MAX_BYTES = 64 << 20


class HttpTool:
    """Sends HTTP requests."""

    kind: ClassVar[str] = "http"
    keeps_time: ClassVar[bool] = True

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes

    async def run(self, call: Call) -> Outcome:
        """Send the request and return the response; a status of 400 or more is a problem with the response as data."""
        options = call.options
        request, seconds = None, DEFAULT_SECONDS
        started = time.perf_counter()
        try:
            seconds = _seconds(options.get("timeout"), call.timeout)
            until = asyncio.get_running_loop().time() + seconds
            follow, verify = options.get("follow_redirects") is not False, options.get("verify_ssl") is not False
            request = build(call, await _proven(call, until) if call.auth else NONE)
            url, reply = await answer(
                call.resources, request, until=until, follow=follow, verify=verify, limit=self._max_bytes
            )
        except Exception as error:
            where = "the http task" if request is None else place(request.method, request.url)
            problem = problem_of_error(error, where, seconds)
            return Outcome(status="error", error=problem, helpers={"http": {"status": None, "headers": {}}})
        headers = reply.headers
        data: dict[str, Any] = {
            "status_code": reply.status,
            "headers": headers,
            "url": without_secrets(url, request.secret),
            "elapsed": round(time.perf_counter() - started, 6),
            "data": decode(reply.body, headers.get("content-type", "")),
        }
        helpers = {"http": {"status": reply.status, "headers": headers}}
        if reply.status < 400:
            return Outcome(data=data, helpers=helpers)
        where = place(request.method, request.url)
        problem = problem_of_status(reply.status, reply.reason, where, headers)
        return Outcome(status="error", data=data, error=problem, helpers=helpers)


async def _proven(call: Call, until: float) -> Proof:
    async with asyncio.timeout_at(until):
        return await prove(call.credentials, call.auth)


def _seconds(own: Any, limit: float | None) -> float:
    seconds = float(own) if own else DEFAULT_SECONDS
    return min(seconds, limit) if limit else seconds
