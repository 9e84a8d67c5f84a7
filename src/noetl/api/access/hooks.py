"""Whom a server lets send to webhook sources: how many at once, how large, signed by whom, and how often.

Whatever is wrong before a signature is good gets the same answer, so that nobody learns which paths there are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import Request

from noetl.api.problems import TooLarge, TooMany, Unauthenticated
from noetl.errors import NoetlError
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.stream import Scope
from noetl.pipelines.pipelines import Pipelines
from noetl.pipelines.sources.hooks import Hooks
from noetl.pipelines.sources.signatures import Unsigned, signed
from noetl.pipelines.tasks.jobs import JobFacts
from noetl.services.credentials.store import CredentialStore

_log = logging.getLogger(__name__)

_FIELDS = ("secret", "key", "api_key", "value", "token", "access_token", "password")
"""Where in a credential the secret is: the first of these that it has. `previous` is one that was good before."""
_MOST_PATHS = 10_000
_MINUTE = 60.0


@dataclass(frozen=True, kw_only=True)
class HookLimits:
    """What a server takes of those who send to webhooks."""

    max_bytes: int = 1024 * 1024
    window_seconds: float = 300.0
    """How far from now a request may have been signed."""
    at_once: int = 32
    """Requests that are worked at a time."""
    per_minute: int = 600
    """Requests that are taken for one path in a minute."""


class HookGate:
    """The gate of one server."""

    def __init__(
        self,
        database: Database,
        payloads: PayloadStore,
        credentials: CredentialStore | None,
        limits: HookLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._payloads = payloads
        self._credentials = credentials
        self._limits = limits
        self._clock = clock
        self._free = self._limits.at_once
        self._taken: OrderedDict[tuple[Scope, str, str], tuple[float, int]] = OrderedDict()
        self._unfinished: OrderedDict[asyncio.Timeout, int] = OrderedDict()
        self._unfinished_bytes = 0
        # What nobody can sign with: the same is done for a path that is not there as for one that is.
        self._nobody = os.urandom(32)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Let a request in for the time of the block, if there is room."""
        if self._free <= 0:
            raise TooMany("too many requests to webhooks at once", hint="send it again in a moment")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1

    async def body(self, request: Request) -> bytes:
        """Read what is sent, up to the most that is taken.

        What all senders together have sent of unfinished bodies is bounded, too; beyond that the oldest is given up.
        """
        most = self._limits.max_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(None) as reading:
                self._unfinished[reading] = 0
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        raise TooLarge(
                            f"the body is larger than the {most} bytes a webhook takes", hint="send less at a time"
                        )
                    self._held_back(reading, len(piece))
        except TimeoutError:
            raise TooMany("too much is being sent to webhooks at once", hint="send it again in a moment") from None
        finally:
            self._unfinished_bytes -= self._unfinished.pop(reading, 0)
        return bytes(body)

    def _held_back(self, reading: asyncio.Timeout, size: int) -> None:
        """Count a piece of an unfinished body, and give up the oldest while there is too much of them."""
        if reading in self._unfinished:
            self._unfinished[reading] += size
            self._unfinished_bytes += size
        while self._unfinished_bytes > self._limits.at_once * self._limits.max_bytes:
            oldest, held = self._unfinished.popitem(last=False)
            self._unfinished_bytes -= held
            oldest.reschedule(asyncio.get_running_loop().time())

    async def admitted(
        self, request: Request, pipelines: Pipelines | None, scope: Scope, dag: str, path: str, body: bytes
    ) -> tuple[JobFacts, Hooks, str | None]:
        """Return the job that takes a request, and what the request is known by; refuse all others alike."""
        facts: JobFacts | None = None
        try:
            if pipelines is None or scope.problems():
                raise Unsigned("there is no such organization here")
            hooks = Hooks(self._database, self._payloads, pipelines.engine)
            behind = await hooks.behind(scope, dag, path)
            facts, source = behind.facts, None if behind.facts is None else behind.facts.definition.source
            style = "noetl" if source is None else source.signature
            secrets = [] if style == "none" else await self._secrets(scope, "" if source is None else source.secret)
            headers = {name.lower(): value for name, value in request.headers.items()}
            window = self._limits.window_seconds
            known_by = signed(style, headers, body, secrets or [self._nobody], now=behind.now, window_seconds=window)
            if facts is None:
                raise Unsigned("nothing takes requests there")
        except Unsigned as problem:
            asked = f"{scope.tenant_id}/{scope.organization_id}/{dag}{path}"[:400]
            _log.info("a request to %a was refused: %s", asked, problem)
            raise Unauthenticated(
                "there is no webhook here that takes this request",
                hint="check its address, its signature and its clock; the server's log tells more",
            ) from None
        self._count((scope, dag, path))
        return facts, hooks, known_by

    async def _secrets(self, scope: Scope, name: str | None) -> list[bytes]:
        """Return the secrets of a credential, none if there is none; it is looked for in any case, to take as long."""
        store = self._credentials
        if store is None:
            _log.warning("no request to a webhook can be checked: this server keeps no credentials")
            return []
        try:
            data = (await store.get(scope, name or "-")).data
        except NoetlError as problem:
            if name:
                _log.warning("the credential %s of a webhook cannot be had: %s", name, problem.message)
            return []
        own = next((str(data[field]) for field in _FIELDS if data.get(field)), None)
        return [one.encode() for one in (own, data.get("previous")) if isinstance(one, str) and one]

    def _count(self, path: tuple[Scope, str, str]) -> None:
        """Count a good request, and refuse those that are too many in a minute."""
        now = self._clock()
        since, count = self._taken.get(path, (now, 0))
        if now - since >= _MINUTE:
            since, count = now, 0
        if count >= self._limits.per_minute:
            raise TooMany(f"more than {self._limits.per_minute} requests in a minute", hint="send it again later")
        self._taken[path] = (since, count + 1)
        self._taken.move_to_end(path)
        while len(self._taken) > _MOST_PATHS:
            self._taken.popitem(last=False)
