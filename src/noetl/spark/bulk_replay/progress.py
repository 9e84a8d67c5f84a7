"""How far a bulk replay has come: tasks tell the driver by datagrams, the driver tells its worker, now and then.

A lost datagram costs nothing: each says how far its shard is in all. One without the right word is not heard.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

EVERY_SECONDS: Final = 0.5


class Teller:
    """Tells of one shard from within its task."""

    def __init__(self, address: tuple[str, int, str] | None, shard: int) -> None:
        self._shard = shard
        self._address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if address is not None else None
        self._told = time.monotonic()

    def reached(self, position: int, *, done: bool = False) -> None:
        """Tell up to which position the shard is folded, unless that was told just before."""
        now = time.monotonic()
        if self._socket is None or self._address is None or (now - self._told < EVERY_SECONDS and not done):
            return
        self._told = now
        host, port, word = self._address
        with suppress(OSError):
            self._socket.sendto(json.dumps([word, self._shard, position]).encode(), (host, port))

    def close(self) -> None:
        """Tell no more."""
        if self._socket is not None:
            self._socket.close()


class Listener:
    """Hears the tasks of one replay, from the driver."""

    def __init__(self, host: str, tell: Callable[[int], object]) -> None:
        """Take the address executors reach this process by, and who is told the sum of all positions reached."""
        self._tell = tell
        self._word = secrets.token_hex(16)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1" if host in ("127.0.0.1", "localhost") else "0.0.0.0", 0))  # noqa: S104
        self._socket.settimeout(EVERY_SECONDS)
        self.address = (host, int(self._socket.getsockname()[1]), self._word)
        self._positions: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="progress", daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        told = (0, 0.0)
        while not self._ended.is_set():
            with suppress(OSError, ValueError):
                self._hear(self._socket.recv(4096))
            reached, now = sum(self._positions.values()), time.monotonic()
            if reached > told[0] and now - told[1] >= EVERY_SECONDS:
                told = (reached, now)
                # Whoever is told may be gone, and then the replay itself soon ends.
                with suppress(Exception):
                    self._tell(reached)

    def _hear(self, datagram: bytes) -> None:
        word, shard, position = json.loads(datagram)
        if isinstance(word, str) and secrets.compare_digest(word, self._word):
            self._positions[int(shard)] = max(self._positions.get(int(shard), 0), int(position))
