"""Who is at the other end of a connection on this machine: two addresses go in, the user id of the other process comes out.

Linux knows the owner of every TCP socket of a network namespace. A socket that its process has closed has no owner any more
and is shown as root's, without an inode: it counts as nobody's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = Path("/proc/net")
_OVERFLOW: Final = Path("/proc/sys/kernel/overflowuid")
_MAPPED: Final = b"\x00" * 10 + b"\xff" * 2
_LISTENS: Final = b"0A"
_CONNECTS: Final = b"02"

Address = tuple[str, int]


class Peer:
    """The other end of one connection, looked up once."""

    def __init__(self, other: Address | None, own: Address | None) -> None:
        self._other = other
        self._own = own
        self._user: asyncio.Task[int | None] | None = None

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> Peer:
        """Return the other end of a connection."""
        return cls(_address(transport.get_extra_info("peername")), _address(transport.get_extra_info("sockname")))

    @property
    def host(self) -> str:
        """The address it comes from, empty where there is none."""
        return "" if self._other is None else self._other[0]

    async def user(self) -> int | None:
        """Return the user id of its process, or None where that cannot be known."""
        if self._other is None or self._own is None:
            return None
        if self._user is None:
            # The table may be long on a busy machine, and the event loop does not wait for it.
            looked = asyncio.to_thread(connected_user, self._other, self._own)
            self._user = asyncio.get_running_loop().create_task(looked)
        return await asyncio.shield(self._user)


def connected_user(other: Address, own: Address) -> int | None:
    """Return who owns the socket at the other end of a connection, or None where that cannot be known."""
    found = diagnosed(other, own)
    if found is None:
        # Nobody may have the whole list read for each connection that is not on it.
        return None if diagnosis_works() else listed_user(other, own)
    # Where there is no such connection, Linux gives whoever listens there.
    if found.ports != (other[1], own[1]) or found.inode == 0 or b"%02X" % found.state in (_LISTENS, _CONNECTS):
        return None
    return _known(found.user)


def listed_user(other: Address, own: Address, tables: Path = TABLES) -> int | None:
    """Return the same by the list of all sockets, which takes longer and is there where single ones cannot be asked for."""
    # An entry may be passed over while others of its row come and go.
    for _ in range(2):
        for local, remote, state, user in _sockets(tables, *other):
            if local == other and remote == own and state not in (_LISTENS, _CONNECTS):
                return _known(user)
    return None


def listening_users(own: Address, tables: Path = TABLES) -> set[int]:
    """Return who listens on an address of this machine; nobody where that cannot be known."""
    own_host = ipaddress.ip_address(own[0])
    return {
        user
        for local, _, state, user in _sockets(tables, "::", own[1])
        if state == _LISTENS and local[1] == own[1] and _reaches(local[0], own_host)
    }


def _reaches(listening: str, host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    found = ipaddress.ip_address(listening)
    return found == host or found.is_unspecified


def _sockets(tables: Path, host: str, port: int) -> Iterator[tuple[Address, Address, bytes, int]]:
    """Give the sockets whose own port is the one asked for: their addresses, their state and their owner."""
    # A socket for both versions of IP is listed with those of the sixth, whatever version it speaks.
    tail = f":{port:04X} ".encode()
    for name in ("tcp6",) if ":" in host and host != "::" else ("tcp", "tcp6"):
        try:
            text = (tables / name).read_bytes()
        except OSError:
            continue
        for line in text.splitlines()[1:] if tail in text else ():
            fields = line.split()
            if len(fields) > 9 and fields[1].endswith(tail.strip()) and fields[9] != b"0":
                yield _listed(fields[1]), _listed(fields[2]), fields[3], int(fields[7])


def _listed(text: bytes) -> Address:
    """Read an address of the table: words of 32 bits in the machine's order, and the port."""
    words, _, port = text.partition(b":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    if len(packed) == 16 and packed.startswith(_MAPPED):
        packed = packed[12:]
    return str(ipaddress.ip_address(packed)), int(port, 16)


def _address(name: object) -> Address | None:
    """Return an address in one form, whatever version of IP its socket speaks."""
    if not isinstance(name, tuple) or len(name) < 2:
        return None
    try:
        found = ipaddress.ip_address(str(name[0]).partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found), int(name[1])


def _known(user: int) -> int | None:
    """Return a user id, but none for the one that stands for all users of other user namespaces."""
    try:
        unknown = int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        unknown = 65_534
    return None if user == unknown else user


_FAMILY: Final = getattr(socket, "AF_NETLINK", None)
_PROTOCOL: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_PORTS: Final = struct.Struct("!HH")
_OWNER: Final = struct.Struct("=II")
_OWNER_AT: Final = _HEADER.size + 4 + 48 + 12
_NO_COOKIE: Final = 0xFFFF_FFFF
_SECONDS: Final = 1.0


class Diagnosis(NamedTuple):
    """What Linux says of a socket."""

    state: int
    ports: tuple[int, int]
    user: int
    inode: int


def diagnosed(local: tuple[str, int], remote: tuple[str, int]) -> Diagnosis | None:
    """Return what is known of a socket by its own address and the other one, or None where nothing is or can be asked."""
    if _FAMILY is None:
        return None
    hosts = [ipaddress.ip_address(host) for host, _ in (local, remote)]
    family = socket.AF_INET if hosts[0].version == 4 else socket.AF_INET6
    asked = (
        struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFF_FFFF)
        + _PORTS.pack(local[1], remote[1])
        + b"".join(host.packed.ljust(16, b"\0") for host in hosts)
        + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    )
    try:
        with socket.socket(_FAMILY, socket.SOCK_RAW, _PROTOCOL) as kernel:
            kernel.settimeout(_SECONDS)
            kernel.sendto(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked, (0, 0))
            answer = kernel.recv(4096)
    except OSError:
        return None
    if len(answer) < _OWNER_AT + _OWNER.size or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    state = answer[_HEADER.size + 1]
    return Diagnosis(state, _PORTS.unpack_from(answer, _HEADER.size + 4), *_OWNER.unpack_from(answer, _OWNER_AT))


@cache
def diagnosis_works() -> bool:
    """Tell whether single sockets can be asked for here, tried once with one of our own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname(), timeout=_SECONDS) as made,
    ):
        return diagnosed(made.getsockname(), made.getpeername()) is not None
