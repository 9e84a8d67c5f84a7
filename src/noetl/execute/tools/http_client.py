"""Sends requests over the worker's one pool of connections and follows redirects without taking credentials along."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache

import aiohttp
from yarl import URL

from noetl.errors import NoetlError
from noetl.execute.tools.http_problems import is_secret
from noetl.execute.tools.http_request import Request
from noetl.execute.tools.port import Resources

_REDIRECTS = 10
_CONNECT_SECONDS = 10.0
_REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "idempotency-key"})
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding", "idempotency-key"})


class TooManyRedirects(NoetlError):
    """The server redirects without end."""

    code = "request_invalid"


async def session_of(resources: Resources) -> aiohttp.ClientSession:
    """Return the worker's session."""
    session: aiohttp.ClientSession = await resources.get(("http",), _open)
    return session


async def _open() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=1000, limit_per_host=0, ttl_dns_cache=60, keepalive_timeout=60)
    return aiohttp.ClientSession(
        connector=connector,
        # Calls of different executions share the session and must not see each other's cookies.
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "noetl"},
        # Looking for a proxy costs something with every request, so it is done only where there is one.
        trust_env=any(name.lower() in ("http_proxy", "https_proxy") for name in os.environ),
    )


@lru_cache(maxsize=64)
def _timeout(connect: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect)


@asynccontextmanager
async def answer(
    session: aiohttp.ClientSession, request: Request, *, seconds: float, follow: bool, verify: bool
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Lend the response to a request, the last one of a chain of redirects."""
    timeout = _timeout(min(seconds, _CONNECT_SECONDS))
    for _ in range(_REDIRECTS + 1):
        body = request.body() if callable(request.body) else request.body
        response = await session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=body,
            allow_redirects=False,
            timeout=timeout,
            ssl=verify,
        )
        location = response.headers.get("Location") if follow and response.status in _REDIRECT_STATUS else None
        if location is None:
            async with response:
                yield response
            return
        response.release()
        request = _redirected(request, response.status, location)
    raise TooManyRedirects(f"the server redirected more than {_REDIRECTS} times")


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
