"""The worker's open HTTP connections: a request goes to an origin over one that is free, or over a new one."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import zlib

import aiohappyeyeballs
from yarl import URL

from noetl.engine.tools.http.connection import Connection, Reply, TooLarge
from noetl.engine.tools.port import Resources

CONNECT_SECONDS = 10.0
_MOST_OPEN = 1000
_IDLE_SECONDS = 60.0
_SECOND_ADDRESS_SECONDS = 0.25
_OFF_LOOP_BYTES = 1 << 16
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})

Origin = tuple[str, str, int, bool]
"""Scheme, host, port, and whether its certificate is looked at."""


class HttpPool:
    """Connections by origin; those not used for a minute are closed."""

    def __init__(self) -> None:
        self._free: dict[Origin, list[Connection]] = {}
        self._places = asyncio.Semaphore(_MOST_OPEN)
        self._trust: dict[bool, ssl.SSLContext] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.is_direct = not any(name.lower() in ("http_proxy", "https_proxy") for name in os.environ)
        """Whether no proxy stands between: talking to one is left to another client."""

    async def send(self, method: str, url: URL, request: bytes, *, verify: bool, until: float, limit: int) -> Reply:
        """Send the bytes of a request and return the reply, its body unpacked; `TimeoutError` if that takes longer."""
        origin = (url.scheme, url.raw_host or "", url.port or 80, verify)
        if self._places.locked():
            async with asyncio.timeout_at(until):
                await self._places.acquire()
        else:
            await self._places.acquire()
        try:
            reply = await self._exchange(method, origin, request, until, limit)
        finally:
            self._places.release()
        encoding = reply.headers.get("content-encoding", "").lower()
        if encoding not in ("gzip", "x-gzip", "deflate") or not reply.body:
            return reply
        if len(reply.body) < _OFF_LOOP_BYTES:
            return reply._replace(body=unpacked(reply.body, limit))
        return reply._replace(body=await asyncio.to_thread(unpacked, reply.body, limit))

    async def _exchange(self, method: str, origin: Origin, request: bytes, until: float, limit: int) -> Reply:
        connection = self._taken(origin)
        if connection is not None:
            try:
                reply = await connection.exchange(request, limit, until)
            except TimeoutError:
                raise
            except OSError:
                # A server closes what was idle for too long for it, perhaps just as the request was on its way.
                if connection.has_answered or method not in _REPEATABLE:
                    raise
                connection = None
        if connection is None:
            async with asyncio.timeout_at(min(until, self._loop.time() + CONNECT_SECONDS)):
                connection = await self._connected(origin)
            reply = await connection.exchange(request, limit, until)
        if connection.is_usable:
            self._give_back(origin, connection)
        return reply

    def _taken(self, origin: Origin) -> Connection | None:
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if connection.is_usable:
                return connection
        return None

    def _give_back(self, origin: Origin, connection: Connection) -> None:
        connection.idle_since = self._loop.time()
        self._free.setdefault(origin, []).append(connection)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(_IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        before = self._loop.time() - _IDLE_SECONDS
        for origin, free in list(self._free.items()):
            for connection in free:
                if connection.idle_since <= before:
                    connection.close()
            self._free[origin] = [connection for connection in free if connection.is_usable]
            if not self._free[origin]:
                del self._free[origin]
        self._sweeping = self._loop.call_later(_IDLE_SECONDS / 2, self._sweep) if self._free else None

    async def _connected(self, origin: Origin) -> Connection:
        scheme, host, port, verify = origin
        trust = await self._trusted(verify=verify) if scheme == "https" else None
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # An address that does not answer must not keep the next one waiting.
        opened = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_SECOND_ADDRESS_SECONDS)
        try:
            _, connection = await self._loop.create_connection(
                Connection, sock=opened, ssl=trust, server_hostname=host if trust else None
            )
        except BaseException:
            opened.close()
            raise
        return connection

    async def _trusted(self, *, verify: bool) -> ssl.SSLContext:
        if verify not in self._trust:
            # Reading the certificates of all authorities takes a while.
            self._trust[verify] = await asyncio.to_thread(_ssl_context, verify=verify)
        return self._trust[verify]

    def close(self) -> None:
        """Close everything."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for free in self._free.values():
            for connection in free:
                connection.close()
        self._free.clear()


async def pool_of(resources: Resources) -> HttpPool:
    """Return the worker's connections."""

    async def make() -> HttpPool:
        return HttpPool()

    pool: HttpPool = await resources.get(("http",), make)
    return pool


def _ssl_context(*, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def unpacked(body: bytes, limit: int) -> bytes:
    """Return a body that was packed with gzip or deflate; never makes more of it than the limit."""
    parts, size = list[bytes](), 0
    # Some servers send `deflate` without the head it should have.
    window = zlib.MAX_WBITS | 32 if _has_head(body) else -zlib.MAX_WBITS
    while body:
        unpacking = zlib.decompressobj(window)
        try:
            part = unpacking.decompress(body, limit - size + 1)
        except zlib.error:
            raise OSError(errno.EPROTO, "the body of the answer is damaged") from None
        size += len(part)
        if size > limit:
            raise TooLarge
        if not unpacking.eof:
            raise OSError(errno.EPROTO, "the body of the answer is cut off")
        parts.append(part)
        body = unpacking.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _has_head(body: bytes) -> bool:
    return body[:2] == b"\x1f\x8b" or (body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0)
