"""The secrets of a worker: while database or server are away, whoever needs a credential waits.

A token server or a secret manager of the user's is not waited for: what it does not answer is an error of the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.platform.waits import answered
from noetl.engine.tools.port import Credential
from noetl.engine.worker.services import Redaction, Secrets
from noetl.language.playbook.model import KeychainEntry, Playbook

_PART: Final = "ledger"


class PatientSecrets:
    """Secrets that are waited for; see `Secrets` for the promises."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    @property
    def redaction(self) -> Redaction:
        """What knows the secrets handed out."""
        return self._secrets.redaction

    @property
    def credentials(self) -> PatientSecrets:
        """Itself: it knows credentials by name."""
        return self

    async def credential(self, name: str) -> Credential:
        """Return a credential of the organization by name."""
        return await answered(_PART, lambda: self._secrets.credentials.credential(name))

    async def keychain(self, grant: CommandGrant, playbook: Playbook, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a playbook's keychain for an execution."""
        return await answered(_PART, lambda: self._secrets.keychain(grant, playbook, names))

    async def secret(self, grant: CommandGrant, entry: KeychainEntry) -> Mapping[str, Any]:
        """Return the fields of a secret that a task of the command's playbook asks for."""
        return await answered(_PART, lambda: self._secrets.secret(grant, entry))
