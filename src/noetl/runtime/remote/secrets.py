"""A worker's secrets, asked of its server; they come sealed, and what was handed out is known to the redactor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.tools.port import Credential
from noetl.language.playbook.model import KeychainEntry, Playbook
from noetl.runtime.remote.server_api import ServerApi
from noetl.services.credentials.credential_types import shown_fields
from noetl.services.credentials.local_secrets import read_worker_secret
from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.sealed_answers import open_answer
from noetl.services.credentials.secret import guarded, secrets_in


class RemoteSecrets:
    """The secrets of the token's organization; without a token, of the server whose key directory this worker shares."""

    def __init__(self, api: ServerApi, key_directory: Path) -> None:
        self._api = api
        self._key_directory = key_directory
        self.redaction = Redactor()

    @property
    def credentials(self) -> RemoteSecrets:
        """Itself: it knows credentials by name."""
        return self

    async def credential(self, name: str) -> Credential:
        """Return a credential by name."""
        found = await self._given("/api/worker/credential", {"name": name})
        credential = Credential(found["name"], found["type"], found["data"])
        self.redaction.add(*secrets_in(guarded(credential.data, shown_fields(credential.type))))
        return credential

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the server resolve a playbook's keychain; the values are redacted from everything that leaves here."""
        if not playbook.keychain:
            return {}
        found = await self._given("/api/commands/keychain", {"lease": _lease(grant)})
        self.redaction.add(*found["secrets"])
        keychain: Mapping[str, Any] = found["keychain"]
        return keychain

    async def secret(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Have the server read a secret that a task asks for."""
        wanted = {"name": entry.name, "auth": entry.auth, "ttl": entry.ttl, "options": entry.options}
        found = await self._given("/api/commands/keychain", {"lease": _lease(grant), "secret": wanted})
        self.redaction.add(*found["secrets"])
        fields: Mapping[str, Any] = found["keychain"]
        return fields

    async def _given(self, path: str, body: dict[str, Any]) -> Any:
        shared = self._api.token or read_worker_secret(self._key_directory)
        answer = await self._api.ask("POST", path, body)
        return open_answer(shared, answer["sealed"])


def _lease(grant: CommandGrant) -> dict[str, Any]:
    return {
        "execution_id": str(grant.execution_id),
        "command_id": grant.command_id,
        "attempt": grant.attempt,
        "token": grant.token,
    }
