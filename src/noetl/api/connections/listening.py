"""A socket that HTTP is served on: an address and a port go in, a bound socket or a one-line error comes out."""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
from collections.abc import Callable, Generator
from typing import Final

import uvicorn

from noetl.errors import ConfigError, Unavailable

CONNECTIONS: Final = 65_536
"""So many files are open at most, however many the system would allow."""


class QuietServer(uvicorn.Server):
    """A server that leaves signals to its caller and tells when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self._ready()


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that has the address; 0 takes a free port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise ConfigError(f"{host!r} is no address to listen on: {problem}") from problem
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as problem:
        made.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {problem.strerror}", hint="another process may have the port"
        ) from problem
    made.setblocking(False)  # noqa: FBT003 - the standard library takes it so
    return made


def allow_many_connections() -> None:
    """Raise how many files this process may have open to what the system lets it: each connection is one of them.

    Shells begin with 1,024 of them by custom, which as many clients at once would use up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def shown_url(host: str, port: int) -> str:
    """Return how an address is written in a URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
