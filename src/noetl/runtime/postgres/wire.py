"""Just enough of PostgreSQL's protocol to ask a server on a Unix socket whether it is ready, and to run one statement.

In goes a socket path, out come the server's parameters; no driver is imported, because every command starts here.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from noetl.runtime.postgres.scram import MECHANISM, Scram, UnprovenError

PROTOCOL_3_0 = 196608
CANNOT_CONNECT_NOW = "57P03"
UNPROVEN = "28P01"
_DONE, _OFFERED, _CHALLENGE, _OUTCOME = 0, 10, 11, 12


class RefusedError(Exception):
    """The server answered, with an error."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def connect_once(
    path: Path,
    user: str,
    password: str | None,
    *,
    database: str = "postgres",
    statements: tuple[str, ...] = (),
    timeout: float = 5.0,
) -> dict[str, str]:
    """Connect, run the statements if there are any, and return the parameters the server reported.

    Raises OSError when nobody listens, and RefusedError when the server answers with an error.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout)
        link.connect(str(path))
        names = f"user\0{user}\0database\0{database}\0application_name\0noetl\0\0".encode()
        link.sendall(struct.pack("!II", 8 + len(names), PROTOCOL_3_0) + names)
        parameters = _read_until_ready(link, password)
        for sql in statements:
            _send(link, b"Q", sql.encode() + b"\0")
            _read_until_ready(link, None)
        _send(link, b"X", b"")
        return parameters


def _read_until_ready(link: socket.socket, password: str | None) -> dict[str, str]:
    parameters: dict[str, str] = {}
    scram = None if password is None else Scram(password)
    while True:
        kind, body = _receive(link)
        if kind == b"S":
            name, value, _ = body.split(b"\0")
            parameters[name.decode()] = value.decode()
        elif kind == b"E":
            fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
            raise RefusedError(fields.get(b"C", ""), fields.get(b"M", "unknown error"))
        elif kind == b"R":
            _prove(link, body, scram)
        elif kind == b"Z":
            return parameters


def _prove(link: socket.socket, body: bytes, scram: Scram | None) -> None:
    (step,) = struct.unpack("!I", body[:4])
    if step == _DONE:
        return
    if scram is None:
        raise RefusedError(UNPROVEN, "the server asks for a password, and there is none to show")
    try:
        if step == _OFFERED:
            first = scram.first
            _send(link, b"p", MECHANISM.encode() + b"\0" + struct.pack("!I", len(first)) + first)
        elif step == _CHALLENGE:
            _send(link, b"p", scram.final(body[4:]))
        elif step == _OUTCOME:
            scram.check(body[4:])
        else:
            raise UnprovenError(f"the server asks for a proof of kind {step}")
    except UnprovenError as unproven:
        raise RefusedError(UNPROVEN, str(unproven)) from None


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
