"""How tools get credentials: bound to one organization, read again after a few seconds, and known to the redactor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from noetl.engine.tools.port import Credential
from noetl.model.stream import Scope
from noetl.services.credentials.credential_types import shown_fields
from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.secret import guarded, secrets_in
from noetl.services.credentials.store import CredentialStore

KEEP_SECONDS = 5.0
_MOST = 1_000


class CredentialCache:
    """Credentials a worker read lately; a change is seen after `keep_seconds` at the latest."""

    def __init__(
        self,
        store: CredentialStore,
        *,
        keep_seconds: float = KEEP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._kept: dict[tuple[Scope, str], tuple[float, Credential]] = {}
        self._reading = asyncio.Lock()

    async def get(self, scope: Scope, name: str) -> Credential:
        """Return a credential, from memory if it was read lately."""
        found = self._fresh(scope, name)
        if found is not None:
            return found
        async with self._reading:
            found = self._fresh(scope, name)
            if found is not None:
                return found
            credential = await self._store.get(scope, name)
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[scope, name] = (self._clock() + self._keep_seconds, credential)
            return credential

    def _fresh(self, scope: Scope, name: str) -> Credential | None:
        until, credential = self._kept.get((scope, name), (0.0, None))
        return credential if self._clock() < until else None


class ScopedCredentials:
    """The `Credentials` of tools: those of one organization. What is handed out is redacted from then on."""

    def __init__(self, cache: CredentialCache, scope: Scope, redactor: Redactor) -> None:
        self._cache = cache
        self._scope = scope
        self._redactor = redactor
        self._given: dict[str, Credential] = {}

    async def credential(self, name: str) -> Credential:
        """Return a credential of this organization by name; `NotFound` when there is none."""
        found = await self._cache.get(self._scope, name)
        if self._given.get(name) is found:
            return found
        self._redactor.add(*secrets_in(guarded(found.data, shown_fields(found.type))))
        self._given[name] = found
        return found
