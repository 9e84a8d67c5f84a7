"""Who may call what, decided in one place: a request and a route go in, the caller comes out, or a refusal."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request

from noetl.api.access.local_callers import LocalCallers
from noetl.api.access.refused_tokens import RefusedTokens
from noetl.api.connections.room import shared_address
from noetl.api.endpoint import ANYONE, Caller, Endpoint
from noetl.api.problems import Unauthenticated
from noetl.errors import Denied, Unavailable
from noetl.model.stream import Scope
from noetl.services.credentials.local_secrets import PREFIX as LOCAL_PREFIX
from noetl.services.credentials.secret import Secret
from noetl.services.credentials.tokens import ApiTokens, TokenHolder, digest

KEEP_SECONDS = 1.0
"""How long it is taken for true what was looked up: that a token is good, and whether there are any. One that is revoked is
refused after this at the latest, and one that is made is asked for."""

_MOST = 1_000
_NEVER = float("-inf")


class Admission:
    """Looks tokens up; where none is required, admits whoever shows none and is local.

    `required` None asks for tokens once the organization has had one, also after the last has ended: nothing that happens by
    itself opens a server to everybody.
    """

    def __init__(
        self,
        tokens: ApiTokens,
        *,
        required: bool | None,
        default_scope: Scope,
        worker_secret: Secret | None = None,
        local: LocalCallers | None = None,
        refused: RefusedTokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._required = required
        self._default_scope = default_scope
        self._worker_secret = worker_secret
        self._local = local or LocalCallers(None)
        self._refused = refused or RefusedTokens()
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, TokenHolder]] = OrderedDict()
        self._known = (_NEVER, True)
        """Until when it is known whether there have been tokens, and whether there have."""
        self._looking: asyncio.Task[bool] | None = None

    async def again(self, request: Request, endpoint: Endpoint, caller: Caller) -> None:
        """Refuse a caller who was admitted before and would not be now, by what the database says at this moment."""
        if caller.token_id is not None:
            self._kept.pop(digest(_token(request)), None)
        else:
            until, had = self._known
            self._known = (min(until, self._clock()), had)
        await self.caller(request, endpoint)

    async def caller(self, request: Request, endpoint: Endpoint) -> Caller:
        """Return who calls, after checking that they may call this route."""
        if endpoint.roles is None:
            return Caller(self._default_scope, frozenset(), "anyone")
        # What is of all tenants is not the local organization's to give away: it takes a token everywhere.
        # And whoever shows a token means to be its holder, and is nobody else if it is no good.
        is_open = endpoint.roles & ANYONE and not await self._asks_for_tokens()
        token = None if is_open and "authorization" not in request.headers else _token(request)
        if is_open and token is not None and self._local.shown(request, token):
            return Caller(self._default_scope, ANYONE, "local", shared=Secret(token))
        # A worker of another home directory shows the token of that one, which says nothing here.
        if token is None or (is_open and token.startswith(LOCAL_PREFIX)):
            await self._local_without_it(request, endpoint, token)
            return Caller(self._default_scope, ANYONE, "local", shared=self._worker_secret)
        holder = await self._holder(request, token)
        if holder.role not in endpoint.roles:
            raise Denied(
                f"a token of the role {holder.role} may not call {endpoint.method} {endpoint.template}",
                hint=f"it takes one of {', '.join(sorted(endpoint.roles))}",
            )
        name = f"token/{holder.token_id}"
        return Caller(holder.scope, frozenset({holder.role}), name, holder.token_id, Secret(token))

    async def _local_without_it(self, request: Request, endpoint: Endpoint, token: str | None) -> None:
        """Refuse a caller that is not local by itself; a token of no machine known here is a guess like any other."""
        try:
            await self._local.check(request, endpoint)
        except Unauthenticated as problem:
            if token is None:
                raise
            raise await self._guessed(request, digest(token), problem) from None

    async def _asks_for_tokens(self) -> bool:
        if self._required is not None:
            return self._required
        until, had = self._known
        if self._clock() < until:
            return had
        # One look serves all who ask meanwhile: they share its answer, and its failure if there has been none before.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> bool:
        began, (before, had) = self._clock(), self._known
        try:
            had = await self._tokens.any_ever(self._default_scope)
        except Unavailable:
            if before == _NEVER:
                raise
            # Tokens are made in the database: while it is away there are those that were, and facts go on to be taken.
            began = self._clock()
        self._known = (began + KEEP_SECONDS, had)
        return had

    async def _holder(self, request: Request, token: str) -> TokenHolder:
        # The token itself is not kept, not even in memory.
        key = digest(token)
        until, found = self._kept.get(key, (0.0, None))
        if found is not None and self._clock() < until:
            return found
        try:
            holder = await self._tokens.admit(token)
        except Denied as problem:
            self._kept.pop(key, None)
            raise await self._guessed(request, key, Unauthenticated(problem.message, hint=problem.hint)) from None
        self._kept[key] = (self._clock() + KEEP_SECONDS, holder)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return holder

    async def _guessed(self, request: Request, key: bytes, problem: Unauthenticated) -> Exception:
        address = shared_address(request.client.host if request.client else "")
        return await self._refused.refused(address, key, problem)


def _token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token:
        raise Unauthenticated("the request carries no token", hint="send `Authorization: Bearer noetl_…`")
    return token
