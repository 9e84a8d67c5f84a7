"""Chooses the loopback TCP port of an embedded server: the one it had, if it is free, else another."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

from noetl.errors import Unavailable

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below the range from which systems take ports for outgoing connections


def free_port(base: Path, remembered: int = 0) -> int:
    """The remembered port if nobody took it, else a free one."""
    if remembered and is_open(remembered):
        return remembered
    # Each project begins to look at its own place, so that projects started together seldom meet.
    offset = int.from_bytes(hashlib.sha256(os.fsencode(base)).digest()[:4], "big")
    for step in range(len(PORTS)):
        port = PORTS[(offset + step) % len(PORTS)]
        if port != remembered and is_open(port):
            return port
    raise Unavailable(f"no TCP port is free between {PORTS.start} and {PORTS.stop}")


def is_open(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True
