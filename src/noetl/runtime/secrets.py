"""A worker's secrets, read from the database by the process itself; what was handed out is known to the redactor."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.tools.port import Credential
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.outgoing.guard import Rights, own_rights
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.language.templates.template import compile_value
from noetl.model.stream import Scope
from noetl.runtime.settings.declaration import Settings
from noetl.services.credentials.access import CredentialCache, ScopedCredentials
from noetl.services.credentials.keychain.fetcher import Fetcher
from noetl.services.credentials.keychain.keychain import Keychain
from noetl.services.credentials.keychain.rows import KeychainRows, KeychainUse
from noetl.services.credentials.keyring import KeyRing
from noetl.services.credentials.providers.registry import all_providers
from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.secret import revealed, secrets_in
from noetl.services.credentials.store import CredentialStore

TIDY_SECONDS = 60.0
"""How often entries that expired, or whose execution has ended, are removed at least, while keychains are in use."""


def open_keyring(settings: Settings) -> KeyRing:
    """Return the master keys; the embedded database makes its first key by itself, any other is refused without one."""
    directory = settings.key_directory / "credentials"
    return KeyRing.load(directory, os.environ, create=settings.database.url is None)


class LocalSecrets:
    """The secrets of one organization. Keys are looked for at the first use: work without secrets needs none.

    A worker asks for them with the rights of its own account. Whoever asks for others gives `rights` that say what they may.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        scope: Scope,
        *,
        rights: Rights = own_rights,
        evaluating: Evaluating | None = None,
    ) -> None:
        self._rights = rights
        self._evaluating = evaluating
        self._settings = settings
        self._database = database
        self._scope = scope
        self.redaction = Redactor()
        self._tidied = time.monotonic()
        self._opened: tuple[ScopedCredentials, Keychain] | None = None

    @property
    def credentials(self) -> LocalSecrets:
        """Itself: it knows credentials by name."""
        return self

    async def credential(self, name: str) -> Credential:
        """Return a credential of this organization by name."""
        return await self._open()[0].credential(name)

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a playbook's keychain; they are redacted from everything that leaves the worker."""
        found = await self.resolved(grant, playbook, names)
        self.redaction.add(*secrets_in(found))
        return {name: revealed(fields) for name, fields in found.items()}

    async def resolved(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Resolve a playbook's keychain; what may not be shown is still a secret."""
        use = KeychainUse(self._scope, playbook.path, grant.execution_id)

        def render(value: Any, before: Mapping[str, Any], where: str, origins: Any) -> Any:
            found = {**names, "keychain": revealed(before)}
            return compile_value(value, f"playbook {playbook.path}, {where}", origins).render(found)

        keychain = self._open()[1]
        found: Mapping[str, Any] = await keychain.resolve(use, playbook.keychain, render)
        if time.monotonic() >= self._tidied + TIDY_SECONDS:
            # A server that resolves for workers has no other time for it.
            self._tidied = time.monotonic()
            await keychain.forget_old(self._scope)
        return found

    async def secret(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Return the fields of a secret a task asks for; they are redacted from everything that leaves the worker."""
        found = await self.asked_for(grant, entry)
        self.redaction.add(*secrets_in(found))
        fields: Mapping[str, Any] = revealed(found)
        return fields

    async def asked_for(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Return the fields of a secret a task asks for, each still a secret; they are kept as those of a keychain are."""
        # The id of an execution alone tells its entries from others'.
        use = KeychainUse(self._scope, grant.catalog_id, grant.execution_id)
        return await self._open()[1].get(use, entry)

    async def renew_due(self) -> None:
        """Renew the kept keychain entries that renew themselves and are due, if any were ever used here, and drop old ones."""
        if self._opened is not None:
            self._tidied = time.monotonic()
            # First, so that nothing is renewed for an execution that has ended.
            await self._opened[1].forget_old(self._scope)
            await self._opened[1].renew_due(self._scope)

    def _open(self) -> tuple[ScopedCredentials, Keychain]:
        if self._opened is None:
            keys = open_keyring(self._settings)
            store = CredentialStore(self._database, keys)
            fetcher = Fetcher(store, all_providers(os.environ), self._rights)
            self._opened = (
                ScopedCredentials(CredentialCache(store), self._scope, self.redaction),
                Keychain(KeychainRows(self._database, keys), fetcher, evaluating=self._evaluating),
            )
        return self._opened
