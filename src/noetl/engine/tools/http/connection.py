"""One HTTP/1.1 connection: the bytes of a request go out, the whole reply comes back. It knows no pool and no address.

It reads with the parser of httptools and gathers the body in memory, which takes a fraction of what a client costs that
can also stream. A reply that is cut off or no HTTP is an `OSError`, and the connection is not used again.
"""

from __future__ import annotations

import asyncio
import errno
from typing import NamedTuple, cast

import httptools

_HEAD_MOST = 1 << 18
"""Bytes of a reply's head, and of all that comes before its body."""


class TooLarge(Exception):
    """The body is longer than a task may take."""


class Reply(NamedTuple):
    """A reply as it came; headers by their lower-case names, those that came several times joined by commas."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._limit = self._head_size = 0
        self._forget()
        self.is_usable = False
        """Whether another request may be sent."""
        self.has_answered = False
        """Whether anything came back for the last request."""
        self.idle_since = 0.0

    def _forget(self) -> None:
        self._reason = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._in_body = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready for the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_usable = True

    async def exchange(self, request: bytes, limit: int, until: float) -> Reply:
        """Send a request and return its reply; `TooLarge` as soon as the body is longer than the limit.

        `TimeoutError` if the reply is not whole by the loop's time `until`.
        """
        self._limit, self._head_size = limit, 0
        self.has_answered = False
        if not self.is_usable:
            raise _hung_up()
        self.is_usable = False
        self._forget()
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Reply] = loop.create_future()
        self._waiting = waiting
        self._transport.write(request)
        # A timer alone takes a fraction of what a block with a time limit does, and there is nothing here to cancel.
        timer = loop.call_at(until, self._fail, TimeoutError())
        try:
            return await waiting
        finally:
            timer.cancel()
            self._waiting = None
            if not self.is_usable:
                self._transport.abort()

    def close(self) -> None:
        """Hang up."""
        self.is_usable = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on; what nobody asked for ends the connection."""
        if self._waiting is None or self._waiting.done():
            self.close()
            return
        self.has_answered = True
        if not self._in_body:
            self._head_size += len(data)
            if self._head_size > _HEAD_MOST:
                self._fail(OSError(errno.EMSGSIZE, "the head of the answer is too long"))
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(OSError(errno.EPROTO, "the answer is no HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is waited for: a body without a length ends here, everything else is cut off."""
        self.is_usable = False
        if exc is None and self._in_body and not self._has_length():
            self._finish(is_usable=False)
        elif isinstance(exc, OSError):
            self._fail(exc)
        else:
            self._fail(_hung_up())

    def on_message_begin(self) -> None:
        """Begin anew; a second reply to one request is one too many."""
        if self._waiting is not None and self._waiting.done():
            self.is_usable = False
        self._forget()

    def on_status(self, reason: bytes) -> None:
        """Take the words beside the status, which may come in pieces."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        lower = name.decode("latin-1").lower()
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        before = self._headers.get(lower)
        self._headers[lower] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        """Refuse a body that says itself that it is too long."""
        self._in_body = True
        length = self._headers.get("content-length", "")
        if length.isdigit() and int(length) > self._limit:
            self._fail(TooLarge())

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._size += len(body)
        if self._size > self._limit:
            self._fail(TooLarge())
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand the reply over, unless it only says that one is to come."""
        if self._parser.get_status_code() >= 200:
            self._finish(is_usable=self._parser.should_keep_alive())

    def _has_length(self) -> bool:
        return "content-length" in self._headers or "transfer-encoding" in self._headers

    def _finish(self, *, is_usable: bool) -> None:
        if self._waiting is None or self._waiting.done():
            return
        self.is_usable = is_usable
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        reason = self._reason.decode("latin-1")
        self._waiting.set_result(Reply(self._parser.get_status_code(), reason, self._headers, body))

    def _fail(self, error: Exception) -> None:
        self.is_usable = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def _hung_up() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "the server hung up before its answer was whole")
