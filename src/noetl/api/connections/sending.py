"""Whether an answer is being read: what waits to be sent goes in, and comes out as stuck when its reader takes too long."""

from __future__ import annotations

import asyncio


class Sending:
    """What one connection has to send."""

    def __init__(self, transport: asyncio.WriteTransport, seconds: float, bytes_per_second: int) -> None:
        self._transport = transport
        self._seconds = seconds
        self._bytes_per_second = bytes_per_second
        self._since: float | None = None
        self._left = 0
        self._read = 0

    def is_stuck(self, now: float) -> bool:
        """Tell whether the reader had its time, which grows with what it reads; asked again and again."""
        left = self._transport.get_write_buffer_size()
        if not left:
            self._since = None
            return False
        if self._since is None:
            self._since, self._left, self._read = now, left, 0
        self._read += max(0, self._left - left)
        self._left = left
        return now > self._since + self._seconds + self._read / self._bytes_per_second

    def moved(self) -> None:
        """Begin anew: the most that may wait was read down."""
        self._since = None
