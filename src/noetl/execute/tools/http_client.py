"""Sends requests over the worker's connections and follows redirects without taking credentials along."""

from __future__ import annotations

from dataclasses import replace

from yarl import URL

from noetl.errors import NoetlError
from noetl.execute.tools.http_connection import Reply
from noetl.execute.tools.http_head import is_plain, written
from noetl.execute.tools.http_pool import pool_of
from noetl.execute.tools.http_problems import is_secret
from noetl.execute.tools.http_request import Request
from noetl.execute.tools.port import Resources

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
    from noetl.execute.tools.http_session import send

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
