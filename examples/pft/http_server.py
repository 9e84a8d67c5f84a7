"""A minimal HTTP/1.1 server: a handler gets method, path and query, and answers at once or as a coroutine.

It parses with httptools and writes each answer in one piece, so that what calls it is measured and not the server.
No TLS, no chunked answers, no files.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

import httptools
import orjson

REASONS = {status.value: status.phrase for status in HTTPStatus}


class Request(NamedTuple):
    """What is asked; a key given twice in the query has its last value."""

    method: str
    path: str
    query: dict[str, str]


class Answer(NamedTuple):
    """What is said: `body` is made JSON; `headers` are added to the usual ones."""

    body: Any
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """Return the whole answer as it goes over the wire."""
        body = orjson.dumps(self.body)
        if self.status == 200 and not self.headers:
            return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
                len(body),
                body,
            )
        head = [f"HTTP/1.1 {self.status} {REASONS[self.status]}", "Content-Type: application/json"]
        head += [f"{name}: {value}" for name, value in self.headers]
        head += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(head).encode() + body


Handler = Callable[[Request], Answer | Awaitable[Answer]]


class Connection(asyncio.Protocol):
    """One client. Answers leave in the order of the requests, however long one takes."""

    def __init__(self, handler: Handler, everyone: set[Connection]) -> None:
        self._handler = handler
        self._everyone = everyone
        self._waiting: deque[Request] = deque()
        self._working: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the client in."""
        self._transport = cast(asyncio.Transport, transport)
        self._everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop what is done for a client that has gone."""
        self._everyone.discard(self)
        if self._working is not None:
            self._working.cancel()

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came; whole requests arrive at `on_message_complete`."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.write(Answer({"detail": "not HTTP"}, 400).encode())
            self._transport.close()

    def on_message_begin(self) -> None:
        """Forget the last request."""
        self._target = b""

    def on_url(self, url: bytes) -> None:
        """Gather the target, which may come in pieces."""
        self._target += url

    def on_message_complete(self) -> None:
        """Answer, or queue behind the answer that is still awaited."""
        path, _, query = self._target.decode("latin-1").partition("?")
        request = Request(self._parser.get_method().decode(), path, _parsed(query))
        if self._working is not None:
            self._waiting.append(request)
            return
        answer = self._handler(request)
        if isinstance(answer, Answer):
            self._transport.write(answer.encode())
        else:
            self._working = asyncio.ensure_future(self._work_off(answer))

    async def _work_off(self, answer: Awaitable[Answer]) -> None:
        while True:
            self._transport.write((await answer).encode())
            if not self._waiting:
                self._working = None
                return
            following = self._handler(self._waiting.popleft())
            answer = _given(following) if isinstance(following, Answer) else following


def _parsed(query: str) -> dict[str, str]:
    if "%" in query or "+" in query:
        return dict(parse_qsl(query, keep_blank_values=True))
    # Plain pairs are nearly all there is, and splitting them takes a fifth of the time.
    return dict([pair.partition("=")[::2] for pair in query.split("&")]) if query else {}


async def _given(answer: Answer) -> Answer:
    return answer


@asynccontextmanager
async def listening(handler: Handler, port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve on a port, 0 for any free one; give the base URL and hang up on every client at the end."""
    everyone: set[Connection] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(handler, everyone), host, port, backlog=512
    )
    try:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in list(everyone):
            connection.close()
        await server.wait_closed()
