"""Which addresses a channel may reach: a host goes in, its addresses come out, or `SendFailed` if one is not allowed.

Whoever connects uses the addresses that were judged, so that no second look-up can give others.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from noetl.alerts.channels.port import SendFailed

_NAT64: Final = ip_network("64:ff9b::/96")
Address = IPv4Address | IPv6Address


def problem_of(address: Address, *, allow_private: bool) -> str | None:
    """Say why an address may not be reached; None if it may."""
    address = _meant(address)
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "is link-local, multicast or no address at all, which no channel may reach"
    if not address.is_global and not allow_private:
        return "is on this machine or in a private network"
    return None


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def reachable(host: str, port: int, *, allow_private: bool) -> list[Address]:
    """Return the addresses of a host; one that may not be reached refuses them all."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise SendFailed(f"the host {host} cannot be found: {problem.strerror or 'no address'}") from problem
    addresses = [ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    for address in addresses:
        wrong = problem_of(address, allow_private=allow_private)
        if wrong is not None:
            hint = "" if allow_private else "; allow_private: true on the channel lets it"
            raise SendFailed(f"the address of the host {host} {wrong}{hint}", permanent=True)
    return list(dict.fromkeys(addresses))
