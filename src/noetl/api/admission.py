"""Who may call what, decided in one place: a request and a route go in, the caller comes out, or a refusal."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import Request

from noetl.api.endpoint import ANYONE, ONLY_WORKERS, Caller, Endpoint
from noetl.api.problems import Unauthenticated
from noetl.credentials.secret import Secret
from noetl.credentials.tokens import ApiTokens, TokenHolder, digest
from noetl.errors import Denied
from noetl.model.stream import Scope

KEEP_SECONDS = 1.0
"""How long a token is taken for good after it was looked up; one that is revoked is refused after this at the latest."""

_MOST = 1_000
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Admission:
    """Looks tokens up; without required tokens, admits whoever reaches the server over the loopback."""

    def __init__(
        self,
        tokens: ApiTokens,
        *,
        required: bool,
        default_scope: Scope,
        worker_secret: Secret | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._required = required
        self._default_scope = default_scope
        self._worker_secret = worker_secret
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, TokenHolder]] = OrderedDict()

    async def caller(self, request: Request, endpoint: Endpoint) -> Caller:
        """Return who calls, after checking that they may call this route."""
        if endpoint.roles is None:
            return Caller(self._default_scope, frozenset(), "anyone")
        # What is of all tenants is not the local organization's to give away: it takes a token everywhere.
        if not self._required and endpoint.roles & ANYONE and not _shows_token(request, endpoint):
            _refuse_other_sites(request)
            return Caller(self._default_scope, ANYONE, "local", shared=self._worker_secret)
        token = _token(request)
        holder = await self._holder(token)
        if holder.role not in endpoint.roles:
            raise Denied(
                f"a token of the role {holder.role} may not call {endpoint.method} {endpoint.template}",
                hint=f"it takes one of {', '.join(sorted(endpoint.roles))}",
            )
        name = f"token/{holder.token_id}"
        return Caller(holder.scope, frozenset({holder.role}), name, holder.token_id, Secret(token))

    async def _holder(self, token: str) -> TokenHolder:
        # The token itself is not kept, not even in memory.
        key = digest(token)
        until, found = self._kept.get(key, (0.0, None))
        if found is not None and self._clock() < until:
            return found
        try:
            holder = await self._tokens.admit(token)
        except Denied as problem:
            self._kept.pop(key, None)
            raise Unauthenticated(problem.message, hint=problem.hint) from None
        self._kept[key] = (self._clock() + KEEP_SECONDS, holder)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return holder


def _token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token:
        raise Unauthenticated("the request carries no token", hint="send `Authorization: Bearer noetl_…`")
    return token


def _shows_token(request: Request, endpoint: Endpoint) -> bool:
    """Tell whether a worker wants its secrets sealed with its token, which must be a good one then."""
    return endpoint.roles == ONLY_WORKERS and "authorization" in request.headers


def _refuse_other_sites(request: Request) -> None:
    """Refuse what a web page of somebody else makes a browser on this machine send."""
    asked = urlsplit(f"//{request.headers.get('host', '')}").hostname
    origin = request.headers.get("origin")
    if asked not in _LOOPBACK or (origin is not None and urlsplit(origin).hostname not in _LOOPBACK):
        raise Denied(
            "without tokens this server answers only requests to its loopback address that no other site sends",
            hint="make a token with `noetl credentials token create` and start the server with credentials",
        )
