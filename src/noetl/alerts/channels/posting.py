"""Posts a body over HTTP to an address that was judged: no redirects, no proxies, no second look-up."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from noetl.alerts.channels.addresses import Address, reachable
from noetl.alerts.channels.port import SendFailed

_LATER: Final = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Refusals that may be mended without another message."""
_LONGEST_WAIT: Final = 1800.0


async def post(address: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, timeout: float) -> None:
    """Post a body; anything but a 2xx raises `SendFailed`, which names the host alone: paths may be secrets."""
    url = _url(address)
    assert url.host is not None
    assert url.port is not None
    known = await reachable(url.host, url.port, allow_private=allow_private)
    connector = aiohttp.TCPConnector(resolver=_Known(known), use_dns_cache=False, force_close=True)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=timeout)) as session,
            session.post(_pinned(url, known), data=body, headers=headers, allow_redirects=False) as answer,
        ):
            status, wait = answer.status, answer.headers.get("Retry-After", "")
    except TimeoutError:
        raise SendFailed(f"{url.host} did not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as problem:
        raise SendFailed(f"{url.host} cannot be reached: {type(problem).__name__}") from None
    _judge(status, wait, url.host)


def _judge(status: int, wait: str, host: str) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SendFailed(f"{host} redirects ({status}), which is not followed", permanent=True)
    seconds = min(float(wait), _LONGEST_WAIT) if wait.isdecimal() else 0.0
    gone = 400 <= status < 500 and status not in _LATER
    raise SendFailed(f"{host} answered {status}", permanent=gone, after_seconds=seconds)


def _url(address: str) -> URL:
    try:
        url = URL(address)
    except ValueError:
        raise SendFailed("the address of the channel cannot be read", permanent=True) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SendFailed("the address of the channel is no http address", permanent=True)
    return url


def _pinned(url: URL, known: list[Address]) -> URL:
    """A host that is an address itself is never looked up, so its judged form is put in its place."""
    return url.with_host(str(known[0])) if _is_address(url) else url


def _is_address(url: URL) -> bool:
    host = (url.host or "").strip("[]")
    return ":" in host or host.replace(".", "").isdigit()


class _Known(AbstractResolver):
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
