"""Posts a body over HTTP to an address that was judged; anything but a 2xx is a failure that says whether to try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.errors import Unavailable
from noetl.kernel.outgoing.guard import AddressRefused, Reach
from noetl.kernel.outgoing.guarded_request import AddressUnreadable, ask, parsed
from noetl.services.alerts.channels.port import SendFailed

_LATER: Final = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Refusals that may be mended without another message."""
_LONGEST_WAIT: Final = 1800.0
_READ_BYTES: Final = 65_536


async def post(address: str, body: bytes, headers: Mapping[str, str], reach: Reach, *, timeout: float) -> None:
    """Post a body; anything but a 2xx raises `SendFailed`, which names the host alone: paths may be secrets."""
    try:
        host = parsed(address).host or ""
        answer = await ask("POST", address, reach, headers=headers, seconds=timeout, most_bytes=_READ_BYTES, data=body)
    except AddressUnreadable:
        raise SendFailed("the address of the channel is no http address", permanent=True) from None
    except AddressRefused as problem:
        raise SendFailed(f"{problem.message}; {problem.hint}", permanent=True) from None
    except Unavailable as problem:
        raise SendFailed(problem.message) from None
    _judge(answer.status, answer.headers.get("Retry-After", ""), host)


def _judge(status: int, wait: str, host: str) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SendFailed(f"{host} redirects ({status}), which is not followed", permanent=True)
    seconds = min(float(wait), _LONGEST_WAIT) if wait.isdecimal() else 0.0
    gone = 400 <= status < 500 and status not in _LATER
    raise SendFailed(f"{host} answered {status}", permanent=gone, after_seconds=seconds)
