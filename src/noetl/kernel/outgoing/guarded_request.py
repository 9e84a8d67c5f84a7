"""One request over HTTP to an address that was judged: no redirects, no proxies, no second look-up, a bounded answer."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from noetl.errors import InputError, Unavailable
from noetl.kernel.outgoing.guard import Address, Reach

MOST_BYTES: Final = 1 << 20


class AddressUnreadable(InputError):
    """The text is no http address."""

    code = "address_unreadable"


class Answered(NamedTuple):
    """What a server answered; the body is cut off where it is longer than was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


async def ask(
    method: str,
    address: str,
    reach: Reach,
    *,
    headers: Mapping[str, str],
    seconds: float,
    most_bytes: int = MOST_BYTES,
    **body: Any,
) -> Answered:
    """Send one request and return its answer. Errors name the host alone: paths and queries may be secrets."""
    url = parsed(address)
    assert url.host is not None
    assert url.port is not None
    try:
        async with (
            await _session(url, reach, seconds) as session,
            session.request(
                method, await _pinned(url, reach), headers=headers, allow_redirects=False, **body
            ) as answer,
        ):
            data, whole = await _bounded(answer.content, most_bytes)
            return Answered(answer.status, answer.headers, data, whole)
    except TimeoutError:
        raise Unavailable(f"{url.host} did not answer within {seconds:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        raise Unavailable(f"{url.host} cannot be reached: {type(problem).__name__}") from None


def parsed(address: str) -> URL:
    """Return an http address, or refuse another."""
    try:
        url = URL(address)
        sound = url.scheme in ("http", "https") and bool(url.host) and url.port is not None
    except ValueError:
        sound = False
    if not sound:
        raise AddressUnreadable("it is no http or https address")
    return url


async def _session(url: URL, reach: Reach, seconds: float) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=seconds)
    if reach.anywhere:
        return aiohttp.ClientSession(timeout=timeout, trust_env=True)
    connector = aiohttp.TCPConnector(
        resolver=_Judged(await reach.resolved(url.host or "", url.port or 0)), use_dns_cache=False, force_close=True
    )
    return aiohttp.ClientSession(connector=connector, timeout=timeout)


async def _pinned(url: URL, reach: Reach) -> URL:
    """A host that is an address itself is never looked up, so its judged form is put in its place."""
    host = (url.host or "").strip("[]")
    is_address = ":" in host or host.replace(".", "").isdigit()
    if reach.anywhere or not is_address:
        return url
    return url.with_host(str((await reach.resolved(host, url.port or 0))[0]))


async def _bounded(content: aiohttp.StreamReader, most: int) -> tuple[bytes, bool]:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > most:
            return bytes(body[:most]), False
    return bytes(body), True


class _Judged(AbstractResolver):
    """Gives the addresses that were judged, whatever the name servers say by now."""

    def __init__(self, known: list[Address]) -> None:
        self._known = known

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return them in aiohttp's form."""
        flags: Any = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(
                hostname=host, host=str(one), port=port, proto=0, flags=flags,
                family=socket.AF_INET if one.version == 4 else socket.AF_INET6,
            )
            for one in self._known
        ]  # fmt: skip

    async def close(self) -> None:
        """Hold nothing."""
