"""What a process may do for an organization: where its requests may go, and with which identities of its own.

A host goes in, the addresses to connect to come out, or a refusal. Callers connect to these addresses, so that no
second look-up can give others.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import msgspec

from noetl.errors import Denied, Unavailable
from noetl.model.stream import Scope

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PLAIN_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+)(?::[0-9]{1,5})?(?:[/?#][!-\[\]-~]*)?", re.IGNORECASE
)
"""No user, no backslash, no blank or control character: nothing that two readers could take for two hosts."""
_NAT64: Final = ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ip_network("::/96")
_TRANSLATED: Final = ip_network("::ffff:0:0:0/96")
_LOCAL_NAT64: Final = ip_network("64:ff9b:1::/48")
"""Stands for an IPv4 address that only the network's own translator knows."""
_SITE_LOCAL: Final = ip_network("fec0::/10")
_OF_OTHERS: Final = frozenset({
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 79, 109, 110, 111, 113, 119, 135, 137, 139,
    143, 161, 179, 389, 445, 465, 512, 513, 514, 515, 587, 601, 636, 993, 995, 1719, 2049, 3306, 5432, 6379, 11211,
})  # fmt: skip
"""Ports of other protocols, which a request of HTTP could be made to speak to."""


class AddressRefused(Denied):
    """The address is none that may be reached on a user's behalf."""

    code = "address_refused"


class HostNotFound(Unavailable):
    """The host has no address."""

    code = "host_not_found"


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody's requests may go: to global addresses, and to what else is allowed here."""

    private: bool = False
    """Whether this machine and private networks may be reached."""
    allowed: tuple[str, ...] = ()
    """Hosts (`vault.internal`, `*.internal`) and networks (`10.1.0.0/16`) that an administrator allows."""
    anywhere: bool = False
    """Whether nothing is judged: the process acts for the one user it runs as."""
    setting: str = "outgoing.allowed"
    """The setting that would allow what is refused."""

    def problem_of(self, address: Address) -> str | None:
        """Say why an address may not be reached; None if it may."""
        meant = _meant(address)
        if self.anywhere or any(meant in network for network in _networks(self.allowed)):
            return None
        if meant.is_link_local or meant.is_multicast or meant.is_unspecified or meant in _LOCAL_NAT64:
            return "is link-local, multicast or no address at all"
        if (not meant.is_global or meant in _SITE_LOCAL) and not self.private:
            return "is on this machine or in a private network"
        return None

    def addresses(self, host: str, port: int, found: Sequence[str]) -> list[Address]:
        """Return the addresses that a look-up gave; one that may not be reached refuses them all."""
        addresses = [ip_address(one.partition("%")[0]) for one in found]
        if not self.names(host):
            for address in addresses:
                wrong = self.problem_of(address)
                if wrong is not None:
                    raise self._refusal(f"the address of the host {_shown(host)} {wrong}")
            if port in _OF_OTHERS and not (self.anywhere or self.private):
                raise self._refusal(f"port {port} of the host {_shown(host)} is another protocol's")
        return list(dict.fromkeys(addresses))

    async def resolved(self, host: str, port: int) -> list[Address]:
        """Look a host up, once, and return the addresses that may be connected to."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            raise _unknown(host, problem) from None
        return self.addresses(host, port, [str(one[4][0]) for one in found])

    def resolved_now(self, host: str, port: int) -> list[Address]:
        """Do the same where the caller may wait: in a thread of its own."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            raise _unknown(host, problem) from None
        return self.addresses(host, port, [str(one[4][0]) for one in found])

    def names(self, host: str) -> bool:
        """Tell whether an administrator allows a host by its name."""
        wanted = host.rstrip(".").lower()
        return any(
            wanted == pattern.lower() or (pattern.startswith("*.") and wanted.endswith(pattern[1:].lower()))
            for pattern in self.allowed
        )

    def refuse_others(self, url: str, own: re.Pattern[str], whose: str) -> None:
        """Refuse a URL whose host is neither one of some hosts, by https, nor allowed by name.

        For clients that look hosts up by themselves, so that what was judged need not be what they connect to. They may
        read a URL in another way, so only what can be read in a single one is taken.
        """
        if self.anywhere:
            return
        found = _PLAIN_URL.fullmatch(url)
        if found is None:
            raise self._refusal(f"the address {_shown(url)!r} is no plain one with a host")
        host = found["host"].lower()
        if not self.names(host) and (found["scheme"].lower() != "https" or own.fullmatch(host) is None):
            raise self._refusal(f"the address {_shown(url)!r} is none of {whose} by https")

    def _refusal(self, why: str) -> AddressRefused:
        return AddressRefused(
            f"{why}, which no request on a user's behalf may reach",
            hint=f"an administrator of the server can allow it by the setting {self.setting}",
        )


ANYWHERE: Final = Reach(anywhere=True)
"""The reach of a user's own process, which has no more rights than that user."""


@lru_cache(maxsize=64)
def _networks(allowed: tuple[str, ...]) -> tuple[Network, ...]:
    found: list[Network] = []
    for text in allowed:
        try:
            found.append(ip_network(text, strict=False))
        except ValueError:
            continue
    return tuple(found)


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1):
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _unknown(host: str, problem: Exception) -> HostNotFound:
    told = problem.strerror if isinstance(problem, OSError) else None
    return HostNotFound(f"the host {_shown(host)} cannot be found: {told or 'no address'}")


def _shown(host: str) -> str:
    return host if len(host) <= 255 else f"{host[:80]}…"


IDENTITIES: Final = ("aws", "azure", "environment", "file", "gcp", "k8s", "lambda", "vault")
"""What a process can be logged in to by itself, and what it can read of its own machine."""


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of one organization in one process."""

    reach: Reach = ANYWHERE
    identities: frozenset[str] | None = None
    """Identities of the process that it may use; None are all, of a process that acts for the one user it runs as."""

    def check(self, identity: str, scope: Scope) -> None:
        """Refuse an identity of the process that no administrator granted to the organization."""
        if self.identities is None or identity in self.identities:
            return
        raise Denied(
            f"the server's own identity for {identity} is not granted to {scope.tenant_id}/{scope.organization_id}",
            hint=f"name a credential in auth, or have an administrator add {identity} to the setting secrets.grants",
        )


Rights = Callable[[Scope], Awaitable[Granted]]
"""Tells what is granted to an organization now."""


async def own_rights(scope: Scope) -> Granted:
    """Grant everything: the process acts with the rights of the user who runs it, for that user."""
    return Granted()
