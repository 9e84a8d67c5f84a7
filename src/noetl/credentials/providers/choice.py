"""All secret providers by the names playbooks use for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from noetl.credentials.providers.aws import AwsSecrets
from noetl.credentials.providers.azure import AzureSecrets
from noetl.credentials.providers.environment import ALLOWED, EnvironmentSecrets
from noetl.credentials.providers.files import KUBERNETES, FileSecrets
from noetl.credentials.providers.gcp import GcpSecrets
from noetl.credentials.providers.port import FetchOptions, SecretProvider
from noetl.credentials.providers.vault import VaultSecrets
from noetl.errors import Denied, InputError

_OWN = frozenset({"environment", "file", "k8s"})
"""Providers without a login: what they may read is bounded when they are made."""


class Providers:
    """The providers of one process.

    Without `shared_identity`, remote providers need a credential in the entry's auth: where organizations do not
    trust each other, none of them may read with the rights of the process.
    """

    def __init__(self, providers: Mapping[str, SecretProvider], *, shared_identity: bool = True) -> None:
        self._providers = dict(providers)
        self._shared_identity = shared_identity

    async def fetch(self, provider: str, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a secret of a provider."""
        chosen = self._providers.get(provider)
        if chosen is None:
            raise InputError(
                f"{provider!r} is no provider of secrets",
                hint=f"the providers are {', '.join(sorted(self._providers))}",
            )
        if options.identity is None and provider not in _OWN and not self._shared_identity:
            raise Denied(
                f"provider {provider!r} needs a credential here: the process's own identity is not for playbooks",
                hint="name the credential in the keychain entry's auth",
            )
        return await chosen.fetch(name, options)


def all_providers(
    environ: Mapping[str, str],
    *,
    directory: Path = KUBERNETES,
    variables: Sequence[str] = ALLOWED,
    shared_identity: bool = True,
) -> Providers:
    """Return every provider there is; none is contacted, and no client imported, before it is used."""
    files = FileSecrets(directory)
    return Providers(
        {
            "aws": AwsSecrets(),
            "azure": AzureSecrets(),
            "environment": EnvironmentSecrets(environ, variables),
            "file": files,
            "gcp": GcpSecrets(),
            "k8s": files,
            "vault": VaultSecrets(environ),
        },
        shared_identity=shared_identity,
    )
