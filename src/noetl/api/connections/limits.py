"""How much a connection may take of a server: numbers that whoever starts the server chooses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits of one server."""

    header_bytes: int = 64 * 1024
    """Bytes of a request line and its headers; also how much chunked framing may exceed what it frames."""
    header_count: int = 100
    header_seconds: float = 10.0
    """From the connection, or from the first byte of a later request, to the end of its headers."""
    body_bytes: int = 16 * 1024 * 1024
    body_seconds: float = 30.0
    """How long a body may take besides what `bytes_per_second` allows for its size."""
    send_seconds: float = 60.0
    """How long an answer may wait for its reader, besides what `bytes_per_second` allows."""
    bytes_per_second: int = 4096
    """The slowest that a body is taken and an answer is read."""
    idle_seconds: float = 75.0
    """How long a connection is kept for the next request."""
    pipelined: int = 16
    """Requests that wait on one connection for the answer of the one before."""
    connections: int = 10_000
    connections_per_address: int = 1_000
