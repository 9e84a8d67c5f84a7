"""How many connections there are: one goes in, and comes in unless all that are there are being answered.

Where there is no room, the connection that has waited longest without a whole request makes some: first of those that never
sent one. So whoever holds connections open keeps nobody out who has something to ask.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from noetl.api.connections.limits import ConnectionLimits
from noetl.api.connections.refusals import CROWDED, Reason, Refusal

_log = logging.getLogger(__name__)

_OTHER_FILES: Final = 256
"""Files that a server needs besides its connections."""
_LOG_SECONDS: Final = 60.0


class Held(Protocol):
    """A connection as far as its room is concerned."""

    address: str

    def overdue(self, now: float) -> Refusal | None:
        """Return why it has to end now, if it has."""
        ...

    def end(self, refusal: Refusal, *, at_once: bool = False) -> None:
        """End it with an answer, or at once without one."""
        ...


class _Group:
    """Connections that share a limit."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh: OrderedDict[Held, None] = OrderedDict()
        """Those that never sent a whole request, the oldest first."""
        self.idle: OrderedDict[Held, None] = OrderedDict()
        """Those whose last request was answered, the longest idle first."""

    def dispensable(self) -> Held | None:
        """Return the connection that is missed least, if one can be missed."""
        return next(iter(self.fresh), None) or next(iter(self.idle), None)


class Room:
    """The connections of one server, in all and by address."""

    def __init__(self, limits: ConnectionLimits, count: Callable[[Reason], None] = lambda reason: None) -> None:
        self._limits = limits
        self._count = count
        self._all = _Group()
        self._by_address: dict[str, _Group] = {}
        self._held: set[Held] = set()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = limits.connections if soft == resource.RLIM_INFINITY else max(16, soft - _OTHER_FILES)
        self._most = min(limits.connections, files)
        self._sweep: asyncio.TimerHandle | None = None
        self._every = min(1.0, limits.header_seconds / 4, limits.body_seconds / 4, limits.send_seconds / 4)
        self._told: dict[Reason, float] = {}
        self._untold: Counter[Reason] = Counter()

    def __len__(self) -> int:
        return self._all.count

    def enter(self, one: Held) -> bool:
        """Take a connection in, if there is room or room can be made."""
        own = self._by_address.get(one.address) or _Group()
        for group, most in ((own, self._limits.connections_per_address), (self._all, self._most)):
            if group.count >= most:
                victim = group.dispensable()
                if victim is None:
                    self.ended("crowded", one.address)
                    return False
                victim.end(CROWDED, at_once=True)
                self.leave(victim)
        # Made again where the one that left was the address's last.
        own = self._by_address.setdefault(one.address, own)
        for group in (own, self._all):
            group.count += 1
            group.fresh[one] = None
        self._held.add(one)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._every, self._swept)
        return True

    def leave(self, one: Held) -> None:
        """Forget a connection; again changes nothing."""
        if one not in self._held:
            return
        self._held.discard(one)
        own = self._by_address[one.address]
        for group in (own, self._all):
            group.count -= 1
            group.fresh.pop(one, None)
            group.idle.pop(one, None)
        if not own.count:
            del self._by_address[one.address]

    def busy(self, one: Held) -> None:
        """Keep a connection whose request is whole until it is answered."""
        if one in self._held:
            for group in (self._by_address[one.address], self._all):
                group.fresh.pop(one, None)
                group.idle.pop(one, None)

    def idle(self, one: Held) -> None:
        """Let a connection go before others again, once its requests are answered."""
        if one in self._held:
            for group in (self._by_address[one.address], self._all):
                group.idle[one] = None

    def ended(self, reason: Reason, address: str) -> None:
        """Count a connection that was ended, and log it: once a minute for each reason, however many there are."""
        self._count(reason)
        self._untold[reason] += 1
        now = asyncio.get_running_loop().time()
        if now - self._told.get(reason, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._told[reason] = now
            _log.warning("connections ended (%s): %d, the last of %s", reason, self._untold.pop(reason), address)

    def _swept(self) -> None:
        """End what is overdue. Nothing runs while there is no connection."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for one in tuple(self._held):
            refusal = one.overdue(now)
            if refusal is not None:
                one.end(refusal)
        self._sweep = loop.call_later(self._every, self._swept) if self._held else None


def shared_address(host: str) -> str:
    """Return what connections of one party have in common: an IPv4 address, or the network of an IPv6 one."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    # One subscriber has a network of 64 bits to choose addresses of.
    return str(ipaddress.ip_network((found, 64), strict=False))
