"""One end for all that a blocking client does: seconds go in, and at their end every connection that was made is shut.

The time-outs of sockets are those of one operation: who sends a byte now and then is never late.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Deadline:
    """Watches connections from its beginning to its end, from a thread of its own."""

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._guard = threading.Lock()
        self._watched: list[socket.socket] = []
        self.passed = False
        """Whether the time is over; whatever failed since failed for that."""

    def __enter__(self) -> Deadline:
        """Begin."""
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End, and leave the connections alone."""
        self._timer.cancel()
        with self._guard:
            for one in self._watched:
                one.close()
            self._watched.clear()

    def watch(self, connection: socket.socket) -> socket.socket:
        """Shut a connection when the time is over, also once it is wrapped; return it."""
        with self._guard:
            # A second handle: TLS takes the first one over.
            self._watched.append(connection.dup())
            if self.passed:
                self._shut()
        return connection

    def _pass(self) -> None:
        with self._guard:
            self.passed = True
            self._shut()

    def _shut(self) -> None:
        for one in self._watched:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def connected(addresses: list[str], port: int, seconds: float, deadline: Deadline) -> socket.socket:
    """Connect to the first of some addresses that answers; few are tried, for each may take its time."""
    tried = addresses[:_TRIED]
    for address in tried[:-1]:
        with suppress(OSError):
            return deadline.watch(socket.create_connection((address, port), seconds / len(tried)))
    return deadline.watch(socket.create_connection((tried[-1], port), seconds / len(tried)))


_TRIED = 3
