"""HTTP on one connection, within limits: bytes go in, requests come out, and whoever takes too much or too long is cut off.

A request counts as one only when it is whole; until then its connection can be ended at any moment in favour of another.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from functools import partial
from typing import Any, Final, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from noetl.api.connections.head import check_head
from noetl.api.connections.limits import ConnectionLimits
from noetl.api.connections.peer import Peer
from noetl.api.connections.refusals import (
    CROWDED,
    MALFORMED,
    PIPELINED,
    SLOW_BODY,
    SLOW_HEADERS,
    UNREAD,
    Refusal,
    Refused,
)
from noetl.api.connections.room import Room, shared_address
from noetl.api.connections.sending import Sending

PEER: Final = "noetl.peer"
"""Where in the scope of a request its connection's other end is."""
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES: Final = 1024 * 1024
"""What is still read and thrown away after a refusal: a connection closed over unread bytes loses its answer."""
_FRAMING: Final = 8
"""How many bytes of chunked framing there may be for each byte framed."""


class _Phase(Enum):
    HEADERS = auto()
    """Of a request that is not there yet, or in part."""
    BODY = auto()
    WHOLE = auto()
    """Requests are whole, and at least one is not answered."""
    IDLE = auto()
    """All requests were answered."""
    ENDED = auto()


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, limits: ConnectionLimits, room: Room, config: Config, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self._limits = limits
        self.timeout_keep_alive = limits.idle_seconds  # type: ignore[assignment]
        self._room = room
        self.address = ""
        self._peer: Peer | None = None
        self._phase = _Phase.HEADERS
        self._since = 0.0
        """When the phase began, as far as its time is bounded."""
        self._until = 0.0
        """When the body must be whole."""
        self._header_bytes = 0
        self._body_bytes = 0
        self._wire_bytes = 0
        """Bytes of the body with its framing."""
        self._thrown_away = 0
        self._running: RequestResponseCycle | None = None
        self._sending: Sending | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection in, or refuse it where all that are there are being answered."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._sending = Sending(transport, self._limits.send_seconds, self._limits.bytes_per_second)
        self._peer = Peer.of(transport)
        self.address = shared_address(self.client[0] if self.client else "")
        if not self._room.enter(self):
            self._phase = _Phase.ENDED
            transport.write(CROWDED.answer())
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever works on a request of the connection, also where others wait behind it."""
        self._phase = _Phase.ENDED
        self._room.leave(self)
        self._abandon()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came, at most as much of it at a time as headers may still have."""
        if self._phase is _Phase.ENDED:
            self._throw_away(len(data))
            return
        if self._phase is _Phase.IDLE:
            self._phase, self._since = _Phase.HEADERS, self.loop.time()
        while data and self._phase is not _Phase.ENDED:
            piece = data
            if self._phase is not _Phase.BODY:
                piece = data[: max(1, self._limits.header_bytes - self._header_bytes)]
                self._header_bytes += len(piece)
            self._wire_bytes += len(piece)
            data = data[len(piece) :]
            self._parse(piece)
            if self._phase is _Phase.HEADERS and self._header_bytes >= self._limits.header_bytes:
                self.end(Refusal("headers", 431, f"the headers are larger than {self._limits.header_bytes} bytes"))
            if self._phase is _Phase.BODY:
                self._measure()

    def on_message_begin(self) -> None:
        """Begin a request; those before it may still wait for their answers."""
        super().on_message_begin()
        if self._phase is not _Phase.HEADERS:
            self._phase, self._since = _Phase.HEADERS, self.loop.time()
            # What else of it came with the request before is less than a piece, and not counted.
            self._header_bytes = 1
        self.scope[PEER] = self._peer  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Those after a body are no headers of the request: nobody has checked them."""
        if self._phase is not _Phase.HEADERS:
            return
        if len(self.headers) >= self._limits.header_count:
            raise Refused(Refusal("headers", 431, f"there are more than {self._limits.header_count} headers"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Give the request to the application, unless its head is refused; its body is still to come."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        upgrade = self.parser.should_upgrade()
        check_head(method, self.url, version, self.headers, upgrade=upgrade)
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        if int(length) > self._limits.body_bytes:
            raise Refused(self._too_large())
        if len(self.pipeline) >= self._limits.pipelined:
            raise Refused(PIPELINED)
        self._phase, self._since = _Phase.BODY, self.loop.time()
        self._until = self._since + self._limits.body_seconds
        self._body_bytes = self._wire_bytes = 0
        super().on_headers_complete()
        if upgrade:
            # What follows is another protocol's, which nobody here speaks.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of a body, up to the most that is taken."""
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise Refused(self._too_large())
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole; its connection is kept from now on until it is answered."""
        super().on_message_complete()
        self._header_bytes = 0
        if self.cycle.response_complete:
            self._rest()
        else:
            self._phase = _Phase.WHOLE
            self._room.busy(self)

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one."""
        super().on_response_complete()
        if self.pipeline:
            return
        if self._phase in (_Phase.HEADERS, _Phase.BODY):
            # The next request has begun: its own time counts from now on.
            self._unset_keepalive_if_required()
            self._since = self.loop.time()
            self._room.idle(self)
        elif self._phase is _Phase.WHOLE and self.cycle.response_complete:
            self._rest()

    def resume_writing(self) -> None:
        """Note that the answer is being read."""
        super().resume_writing()
        if self._sending is not None:
            self._sending.moved()

    def overdue(self, now: float) -> Refusal | None:
        """Return why the connection has to end now, if it has."""
        assert self._sending is not None
        if self._phase is _Phase.ENDED:
            if now - self._since > _LINGER_SECONDS:
                self.transport.abort()
            return None
        if self._sending.is_stuck(now):
            return UNREAD
        if self.transport.is_closing() or self._answers_first():
            return None
        if self._phase is _Phase.IDLE and now - self._since > self._limits.idle_seconds:
            # The timer of whoever answered is gone where the rest of a body came after its answer.
            self.transport.close()
            return None
        if self._phase is _Phase.HEADERS and now - self._since > self._limits.header_seconds:
            return SLOW_HEADERS
        if self._phase is _Phase.BODY:
            if self.flow.read_paused:
                # Nobody can send what is not read: the wait is ours.
                self._until = max(self._until, now + self._limits.body_seconds)
            elif now > self._until:
                return SLOW_BODY
        return None

    def end(self, refusal: Refusal, *, at_once: bool = False) -> None:
        """Refuse what came, with an answer if it is the one that the client waits for, and close."""
        at_once = at_once or refusal is UNREAD
        if self._phase is not _Phase.ENDED:
            self._room.ended(refusal.reason, self.address)
            if not at_once and self._is_next():
                self.transport.write(refusal.answer())
            self._phase, self._since = _Phase.ENDED, self.loop.time()
            self._abandon()
            self.flow.resume_reading()
            if not self.transport.is_closing():
                self.transport.write_eof()
        if at_once:
            self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _parse(self, piece: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return  # it is answered as any other request, and its connection closes
        except httptools.HttpParserError as problem:
            raised = problem.__context__
            self.end(raised.refusal if isinstance(raised, Refused) else MALFORMED)

    def _measure(self) -> None:
        """Give the body time for what came of it, and refuse framing that frames nothing."""
        allowed = self._limits.body_seconds + self._wire_bytes / self._limits.bytes_per_second
        self._until = max(self._until, self._since + allowed)
        if self._wire_bytes - self._body_bytes > self._limits.header_bytes + _FRAMING * self._body_bytes:
            self.end(Refusal("body", 413, "there is more framing than body in the chunks"))

    def _rest(self) -> None:
        self._phase, self._since = _Phase.IDLE, self.loop.time()
        self._room.idle(self)

    def _answers_first(self) -> bool:
        """Tell whether a request before the one that is being read is still to be answered."""
        running = self._running
        if running is None or running.response_complete:
            return False
        return self._phase is _Phase.HEADERS or running is not self.cycle

    def _is_next(self) -> bool:
        """Tell whether the request that is being read is the one whose answer comes next, and nothing of that is sent yet."""
        if self._answers_first():
            return False
        if self._phase is _Phase.HEADERS:
            return self._header_bytes > 0
        return self.cycle is not None and not self.cycle.response_started

    def _abandon(self) -> None:
        """Tell whoever works on a request that nobody waits for its answer any more."""
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _throw_away(self, size: int) -> None:
        self._thrown_away += size
        if self._thrown_away > _LINGER_BYTES:
            self.transport.abort()

    def _too_large(self) -> Refusal:
        most = self._limits.body_bytes
        return Refusal("body", 413, f"the body is larger than {most} bytes", "store it as a payload first")


def protocol_of(limits: ConnectionLimits, room: Room) -> type[asyncio.Protocol]:
    """Return what makes the connections of one server, in the form that uvicorn asks for."""
    return cast("type[asyncio.Protocol]", partial(LimitedProtocol, limits, room))
