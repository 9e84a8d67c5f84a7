"""The `http` tool: a request goes out, redirects are followed, and the decoded response comes back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, ClassVar

from yarl import URL

from noetl.engine.tools.http.auth import NONE, Proof, prove
from noetl.engine.tools.http.connection import Reply
from noetl.engine.tools.http.pool import pool_of
from noetl.engine.tools.http.request import Request, build, is_plain, written
from noetl.engine.tools.http.response import (
    decode,
    is_secret,
    place,
    problem_of_error,
    problem_of_status,
    without_secrets,
)
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Resources
from noetl.errors import NoetlError

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


_REDIRECTS = 10
_REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "idempotency-key"})
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding", "idempotency-key"})


class TooManyRedirects(NoetlError):
    """The server redirects without end."""

    code = "request_invalid"


async def answer(
    resources: Resources, request: Request, *, until: float, follow: bool, verify: bool, limit: int
) -> tuple[URL, Reply]:
    """Return the reply to a request, the last one of a chain of redirects, and the address it came from.

    `TimeoutError` if it is not whole by the loop's time `until`.
    """
    for _ in range(_REDIRECTS + 1):
        reply = await _send(resources, request, until=until, verify=verify, limit=limit)
        location = reply.headers.get("location") if follow and reply.status in _REDIRECT_STATUS else None
        if location is None:
            return request.url, reply
        request = _redirected(request, reply.status, location)
    raise TooManyRedirects(f"the server redirected more than {_REDIRECTS} times")


async def _send(resources: Resources, request: Request, *, until: float, verify: bool, limit: int) -> Reply:
    pool = await pool_of(resources)
    if pool.is_direct and is_plain(request):
        head = written(request)
        return await pool.send(request.method, request.url, head, verify=verify, until=until, limit=limit)
    # Loaded only where it is needed: it takes longer to load than everything else here together.
    from noetl.engine.tools.http.session import send

    return await send(resources, request, verify=verify, until=until, limit=limit)


def _redirected(request: Request, status: int, location: str) -> Request:
    url = request.url.join(URL(location))
    if url.scheme not in ("http", "https") or not url.host:
        raise TooManyRedirects("the server redirected to an address that is not http")
    headers = request.headers
    if url.origin() != request.url.origin():
        private = _PRIVATE_HEADERS | request.secret
        headers = {name: text for name, text in headers.items() if name.lower() not in private and not is_secret(name)}
    if status == 303 or (status in (301, 302) and request.method == "POST"):
        headers = {name: value for name, value in headers.items() if name.lower() not in _BODY_HEADERS}
        method = "HEAD" if request.method == "HEAD" else "GET"
        return replace(request, method=method, url=url, headers=headers, body=None)
    return replace(request, url=url, headers=headers)
