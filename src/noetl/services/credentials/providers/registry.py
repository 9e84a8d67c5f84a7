"""All secret providers by the names playbooks use for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from noetl.errors import InputError
from noetl.services.credentials.providers.aws import AwsSecrets
from noetl.services.credentials.providers.azure import AzureSecrets
from noetl.services.credentials.providers.gcp import GcpSecrets
from noetl.services.credentials.providers.local import ALLOWED, KUBERNETES, EnvironmentSecrets, FileSecrets
from noetl.services.credentials.providers.port import FetchOptions, SecretProvider
from noetl.services.credentials.providers.vault import VaultSecrets

OWN = frozenset({"environment", "file", "k8s"})
"""Providers without a login: they read what the process itself can, bounded when they are made."""


class Providers:
    """The providers of one process; who may use which with the process's own identity is for the caller to know."""

    def __init__(self, providers: Mapping[str, SecretProvider]) -> None:
        self._providers = dict(providers)

    async def fetch(self, provider: str, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a secret of a provider."""
        chosen = self._providers.get(provider)
        if chosen is None:
            raise InputError(
                f"{provider!r} is no provider of secrets",
                hint=f"the providers are {', '.join(sorted(self._providers))}",
            )
        return await chosen.fetch(name, options)


def all_providers(
    environ: Mapping[str, str],
    *,
    directory: Path = KUBERNETES,
    variables: Sequence[str] = ALLOWED,
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
        }
    )
