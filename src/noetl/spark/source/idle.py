"""Connections kept for the next transaction of a process, since opening one takes longer than a small read."""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from typing import Any, Final

_SECONDS: Final = 60.0
_MOST: Final = 2


def ended(connection: Any, cursor: Any = None) -> None:
    """Close a connection in whatever state it is."""
    with suppress(Exception):
        if cursor is not None:
            cursor.close()
        connection.close()


class IdleConnections:
    """Connections by the login they were opened with, each for a minute after its last use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._held: dict[str, list[tuple[Any, float]]] = {}
        atexit.register(self.close)

    def take(self, login: str) -> Any:
        """Return a connection that was used a moment ago, or None."""
        with self._lock:
            stale = self._stale()
            held = self._held.get(login)
            connection, _ = held.pop() if held else (None, 0.0)
        for one in stale:
            ended(one)
        return connection

    def keep(self, login: str, connection: Any) -> None:
        """Keep a connection, or close it where there are enough."""
        with self._lock:
            closing = self._stale()
            held = self._held.setdefault(login, [])
            if len(held) < _MOST:
                held.append((connection, time.monotonic()))
            else:
                closing.append(connection)
        for one in closing:
            ended(one)

    def close(self) -> None:
        """Close what is kept."""
        with self._lock:
            self._forget_parents()
            held, self._held = self._held, {}
        for connection, _ in (pair for pairs in held.values() for pair in pairs):
            ended(connection)

    def _stale(self) -> list[Any]:
        """Take out what has been idle for too long."""
        self._forget_parents()
        since = time.monotonic() - _SECONDS
        found = [one for pairs in self._held.values() for one, used in pairs if used < since]
        fresh = {login: [pair for pair in pairs if pair[1] >= since] for login, pairs in self._held.items()}
        self._held = {login: pairs for login, pairs in fresh.items() if pairs}
        return found

    def _forget_parents(self) -> None:
        # A forked process leaves its parent's connections alone; closing them would end them for the parent too.
        if self._process != os.getpid():
            _PARENTS.append(self._held)
            self._process, self._held = os.getpid(), {}


_PARENTS: Final[list[Any]] = []
"""Kept from being collected, which would close them."""

IDLE: Final = IdleConnections()
"""Those of this process."""
