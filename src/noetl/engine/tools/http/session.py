"""Sends what is not of the everyday kind, such as forms in parts and whatever goes through a proxy, with aiohttp.

Its errors leave as those of the operating system, because its own words may quote a whole address.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from noetl.engine.tools.http.connection import Reply, TooLarge
from noetl.engine.tools.http.pool import CONNECT_SECONDS
from noetl.engine.tools.http.request import Part, Request
from noetl.engine.tools.port import Resources

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
"""Bounds connecting alone: whoever sends bounds the rest."""


async def send(resources: Resources, request: Request, *, verify: bool, until: float, limit: int) -> Reply:
    """Send one request over the worker's session and return its reply; `TimeoutError` if that takes longer."""
    session = await session_of(resources)
    body = _form(request.body) if isinstance(request.body, tuple) else request.body
    with plain_errors():
        async with (
            asyncio.timeout_at(until),
            session.request(
                request.method,
                request.url,
                headers=request.headers,
                data=body,
                allow_redirects=False,
                timeout=TIMEOUT,
                ssl=verify,
            ) as response,
        ):
            content = await whole_body(response, limit)
            return Reply(response.status, response.reason or "", headers_of(response), content)


async def session_of(resources: Resources) -> aiohttp.ClientSession:
    """Return the worker's session."""
    session: aiohttp.ClientSession = await resources.get(("http", "session"), _open)
    return session


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let errors of the client leave as those of the operating system."""
    try:
        yield
    except aiohttp.InvalidURL:
        raise ValueError("the address cannot be sent") from None
    except aiohttp.ClientSSLError as error:
        found = getattr(error, "certificate_error", None)
        raise found if isinstance(found, ssl.SSLError) else ssl.SSLError(0, error.strerror or "refused") from None
    except aiohttp.ClientError as error:
        words = getattr(error, "strerror", None) or type(error).__name__
        raise OSError(getattr(error, "errno", None) or errno.EPROTO, words) from None


async def _open() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1000, ttl_dns_cache=60, keepalive_timeout=60),
        # Calls of different executions share the session and must not see each other's cookies.
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "noetl"},
        trust_env=True,
    )


async def whole_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body of a response; `TooLarge` as soon as it is longer than the limit."""
    parts, size = list[bytes](), 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limit:
            raise TooLarge
        parts.append(part)
    return b"".join(parts)


def headers_of(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return headers by their lower-case names, those that came several times joined by commas."""
    found: dict[str, str] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        found[lower] = f"{found[lower]}, {value}" if lower in found else value
    return found


def _form(parts: tuple[Part, ...]) -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    for part in parts:
        form.add_field(part.name, part.content, filename=part.filename, content_type=part.media_type)
    return form
