"""Just enough of PostgreSQL's protocol to ask a server on a Unix socket whether it is ready, and to run one statement.

In goes a socket path, out come the server's parameters; no driver is imported, because every command starts here.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

PROTOCOL_3_0 = 196608
CANNOT_CONNECT_NOW = "57P03"


class RefusedError(Exception):
    """The server answered, with an error."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def connect_once(
    path: Path, user: str, database: str = "postgres", sql: str | None = None, timeout: float = 5.0
) -> dict[str, str]:
    """Connect by trust, run the statement if there is one, and return the parameters the server reported.

    Raises OSError when nobody listens, and RefusedError when the server answers with an error.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout)
        link.connect(str(path))
        names = f"user\0{user}\0database\0{database}\0application_name\0noetl\0\0".encode()
        link.sendall(struct.pack("!II", 8 + len(names), PROTOCOL_3_0) + names)
        parameters = _read_until_ready(link)
        if sql is not None:
            _send(link, b"Q", sql.encode() + b"\0")
            _read_until_ready(link)
        _send(link, b"X", b"")
        return parameters


def _read_until_ready(link: socket.socket) -> dict[str, str]:
    parameters: dict[str, str] = {}
    while True:
        kind, body = _receive(link)
        if kind == b"S":
            name, value, _ = body.split(b"\0")
            parameters[name.decode()] = value.decode()
        elif kind == b"E":
            fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
            raise RefusedError(fields.get(b"C", ""), fields.get(b"M", "unknown error"))
        elif kind == b"R" and body[:4] != b"\0\0\0\0":
            raise RefusedError("28000", "the server asks for a password on its own socket")
        elif kind == b"Z":
            return parameters


def _send(link: socket.socket, kind: bytes, body: bytes) -> None:
    link.sendall(kind + struct.pack("!I", 4 + len(body)) + body)


def _receive(link: socket.socket) -> tuple[bytes, bytes]:
    header = _read_exactly(link, 5)
    return header[:1], _read_exactly(link, struct.unpack("!I", header[1:])[0] - 4)


def _read_exactly(link: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = link.recv(size - len(received))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        received += part
    return received
