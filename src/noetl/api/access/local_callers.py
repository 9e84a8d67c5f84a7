"""Who counts as local where no token is asked for: a request goes in, and is refused unless it is of the server's own account.

Reaching the loopback is not enough on a machine with several accounts. A caller is local when the process at the other end of
its connection runs under the server's user id or root's, or when it shows the token in the server's key directory. What came
through a proxy, and what a page of another site makes a browser send, is never local. A task in namespaces has the server's
user id too, and cannot read that token: whoever changes tokens, credentials or roles has to show it.
"""

from __future__ import annotations

import hmac
import os
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from noetl.api.connections.listening import is_loopback
from noetl.api.connections.peer import Peer
from noetl.api.connections.protocol import PEER
from noetl.api.endpoint import Endpoint
from noetl.api.problems import Unauthenticated
from noetl.errors import Denied
from noetl.services.credentials.local_secrets import LocalToken

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FORWARDED: Final = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "x-original-host", "x-original-url",
                               "x-proxyuser-ip", "true-client-ip", "cf-connecting-ip", "cf-ray"})  # fmt: skip
_FORWARDED_PREFIXES: Final = ("x-forwarded", "x-envoy-")
_MAKE: Final = "make a token with `noetl credentials token create` and send it"


class LocalCallers:
    """The local callers of one server."""

    def __init__(self, token: LocalToken | None) -> None:
        self._token = token
        self._users = frozenset({0, os.geteuid()})

    def shown(self, request: Request, token: str) -> bool:
        """Tell whether a token is the one of this machine; it is no good with a request that was forwarded."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.secret.reveal().encode()):
            return False
        _refuse_forwarded(request)
        return True

    async def check(self, request: Request, endpoint: Endpoint) -> None:
        """Refuse a caller without a token that is not local, or wants what takes more than that."""
        _refuse_forwarded(request)
        _refuse_other_sites(request)
        peer = request.scope.get(PEER)
        user = await peer.user() if isinstance(peer, Peer) and is_loopback(peer.host) else None
        if user in self._users:
            if endpoint.needs_proof:
                raise self._unproven(endpoint)
            return
        said = "whose account is not known" if user is None else f"of another account (user id {user})"
        raise Unauthenticated(
            f"without tokens this server answers its own account alone, and the request is of a process {said}",
            hint=self._where + _MAKE,
        )

    @property
    def _where(self) -> str:
        return "" if self._token is None else f"send the token in {self._token.path} as a bearer, or "

    def _unproven(self, endpoint: Endpoint) -> Unauthenticated:
        return Unauthenticated(
            f"{endpoint.method} {endpoint.template} gives rights or secrets away, which tasks of this account may not do:"
            " the request has to show a token",
            hint=f"{self._where}use the commands of noetl, or {_MAKE}",
        )


def _refuse_forwarded(request: Request) -> None:
    """Refuse what a proxy passed on: the process at the other end is the proxy, whoever asked it."""
    for name in request.headers:
        if name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES):
            raise Unauthenticated(
                f"the request came through a proxy ({name}), and what is forwarded never counts as local", hint=_MAKE
            )


def _refuse_other_sites(request: Request) -> None:
    """Refuse what a web page of somebody else makes a browser on this machine send."""
    asked = urlsplit(f"//{request.headers.get('host', '')}").hostname
    origin = request.headers.get("origin")
    if asked not in _LOOPBACK or (origin is not None and urlsplit(origin).hostname not in _LOOPBACK):
        raise Denied(
            "without tokens this server answers only requests to its loopback address that no other site sends",
            hint=_MAKE,
        )
