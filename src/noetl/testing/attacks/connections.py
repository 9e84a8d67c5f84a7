"""What clients without a token do to a server's connections: raw bytes that stop half-way, never end, or can be read in two ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

HOST: Final = "127.0.0.1"
_PIECE: Final = 1024 * 1024

_LENGTH: Final = b"Content-Length: 4\r\n"
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"

AMBIGUOUS: Final[dict[str, bytes]] = {
    "length and chunks": b"POST /x HTTP/1.1\r\nHost: a\r\n" + _LENGTH + _CHUNKED + b"\r\n0\r\n\r\n",
    "chunks and length": b"POST /x HTTP/1.1\r\nHost: a\r\n" + _CHUNKED + _LENGTH + b"\r\n0\r\n\r\n",
    "two lengths": b"POST /x HTTP/1.1\r\nHost: a\r\n" + _LENGTH + b"Content-Length: 5\r\n\r\nabcde",
    "a list of lengths": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\nabcd",
    "a signed length": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
    "an unknown coding": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks twice": b"POST /x HTTP/1.1\r\nHost: a\r\n" + _CHUNKED + _CHUNKED + b"\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /x HTTP/1.0\r\nHost: a\r\n" + _CHUNKED + b"\r\n0\r\n\r\n",
    "an upgrade with a body": b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    + _LENGTH
    + b"\r\nGET ",
    "a space before the colon": b"GET /x HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n",
    "a folded header": b"GET /x HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n\r\n",
    "bare line feeds": b"GET /x HTTP/1.1\nHost: a\n\n",
    "no host": b"GET /x HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a target of another host": b"GET http://evil.example/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    "a target that is no path": b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tab in the target": b"GET /x\ty HTTP/1.1\r\nHost: a\r\n\r\n",
}
"""Requests that a proxy and a server may read differently, or that no server has to take."""


async def answered(port: int, *pieces: bytes) -> bytes:
    """Send bytes on a connection of their own and return all that comes until the other side closes it."""
    async with connected(port) as (reader, writer):
        with suppress(OSError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        return await reader.read()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection for the time of the block."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def unfinished(port: int, count: int, sent: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Keep connections open for the time of the block, each after the same unfinished bytes; gives what reads their answers."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(port)) for _ in range(count)]
        for _, writer in opened:
            writer.write(sent)
        yield [reader for reader, _ in opened]


def half_a_body(path: str, size: int = 1_000) -> bytes:
    """Return a request whose body stops half-way."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + b"{" * (size // 2)


def endless_headers(port: int, size: int) -> int:
    """Send one header of so many bytes as fast as it goes; return how much of it the server took."""
    with _socket_to(port) as made:
        made.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Large: ".encode())
        return _pour(made, b"x" * _PIECE, size)


def endless_lines(port: int, size: int) -> int:
    """Send small headers without an end, so many bytes of them; return how much the server took."""
    with _socket_to(port) as made:
        made.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n".encode())
        return _pour(made, b"X-Small: y\r\n" * (_PIECE // 12), size)


def endless_extension(port: int, size: int) -> int:
    """Send a chunk whose extension never ends; return how much the server took."""
    with _socket_to(port) as made:
        made.sendall(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n1;".encode())
        return _pour(made, b"x" * _PIECE, size)


def endless_trailers(port: int, size: int) -> int:
    """Send a body whose trailers never end; return how much the server took."""
    with _socket_to(port) as made:
        made.sendall(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n".encode())
        return _pour(made, b"X-Small: y\r\n" * (_PIECE // 12), size)


def endless_requests(port: int, size: int) -> int:
    """Send requests without reading any answer, so many bytes of them; return how much the server took."""
    with _socket_to(port) as made:
        one = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        return _pour(made, one * (_PIECE // len(one)), size)


@contextmanager
def _socket_to(port: int) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, port), timeout=20) as made:
        yield made


def _pour(made: socket.socket, piece: bytes, size: int) -> int:
    taken = 0
    with suppress(OSError):
        while taken < size:
            taken += made.send(piece)
    return taken
