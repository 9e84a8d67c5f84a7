"""Secrets from Azure Key Vault."""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from noetl.errors import ConfigError, Denied, NotFound, Unavailable
from noetl.kernel.outgoing.blocking_threads import waited
from noetl.services.credentials.providers.port import FetchOptions, client_library, fields_of, needed

_NAME = re.compile(r"[A-Za-z0-9-]{3,24}")
_CLOUDS = re.compile(r"[a-z0-9-]+\.vault\.(?:azure\.net|azure\.cn|usgovcloudapi\.net)")


class AzureSecrets:
    """Reads as the application of the credential, or as the identity azure-identity finds for the process."""

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a secret; the further option `vault` is the vault's name or its URL."""
        client_library("azure.keyvault.secrets", "azure")
        client_library("azure.identity", "azure")
        return await waited(options.scope, partial(_read, name, vault_url(name, options), options))


def vault_url(name: str, options: FetchOptions) -> str:
    """Return the URL of the vault a secret is in."""
    vault = options.text("vault") or (options.identity or {}).get("vault") or (options.identity or {}).get("vault_url")
    if not vault:
        raise ConfigError(f"secret {name!r}: no Azure vault is given", hint="set vault in the keychain entry")
    if "://" not in vault:
        if not _NAME.fullmatch(vault):
            raise ConfigError(f"secret {name!r}: {vault[:40]!r} is no name of an Azure vault")
        return f"https://{vault}.vault.azure.net"
    if urlsplit(vault).scheme != "https":
        raise ConfigError(f"secret {name!r}: the Azure vault is not reached by https")
    options.reach.refuse_others(str(vault), _CLOUDS, "Azure's vaults")
    return str(vault)


def _read(name: str, url: str, options: FetchOptions) -> dict[str, str]:
    secrets = client_library("azure.keyvault.secrets", "azure")
    failures = client_library("azure.core.exceptions", "azure")
    try:
        with secrets.SecretClient(vault_url=url, credential=_login(options)) as client:
            found = client.get_secret(name, options.version)
    except failures.ResourceNotFoundError:
        raise NotFound(f"the Azure vault has no secret {name!r}") from None
    except failures.ClientAuthenticationError:
        raise Denied(f"Azure does not accept the identity for the secret {name!r}") from None
    except failures.HttpResponseError as problem:
        if problem.status_code in {401, 403}:
            raise Denied(f"Azure does not let this identity read the secret {name!r}") from None
        raise Unavailable(f"Azure does not answer for the secret {name!r}: status {problem.status_code}") from None
    except failures.AzureError as problem:
        raise Unavailable(f"Azure does not answer for the secret {name!r}: {type(problem).__name__}") from None
    return fields_of(found.value or "")


def _login(options: FetchOptions) -> Any:
    identity = client_library("azure.identity", "azure")
    given = options.identity
    if given is None:
        return identity.DefaultAzureCredential()
    return identity.ClientSecretCredential(
        tenant_id=needed(given, "tenant_id", "tenant", what="Azure"),
        client_id=needed(given, "client_id", what="Azure"),
        client_secret=needed(given, "client_secret", what="Azure"),
    )
