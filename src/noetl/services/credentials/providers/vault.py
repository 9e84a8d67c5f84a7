"""Secrets from HashiCorp Vault, key-value engines of version 1 and 2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from noetl.errors import ConfigError, Denied, InputError, NotFound, Unavailable
from noetl.kernel.outgoing.blocking_sessions import guarded_session
from noetl.kernel.outgoing.blocking_threads import waited
from noetl.services.credentials.providers.port import FetchOptions, client_library, needed

_SECONDS = 30


class VaultSecrets:
    """Reads from the Vault of the credential, or from the one in VAULT_ADDR with VAULT_TOKEN.

    Address and token come from the same place, always: a playbook cannot have the process's token sent elsewhere.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of the secret at a path; `mount` and `kv_version` are further options."""
        client_library("hvac", "vault")
        return await waited(options.scope, partial(self._read, name, options))

    def _read(self, name: str, options: FetchOptions) -> dict[str, str]:
        hvac = client_library("hvac", "vault")
        requests = client_library("requests", "vault")
        address, token, namespace = self._login(options.identity)
        mount = options.text("mount") or "secret"
        if any(part in ("", ".", "..") for part in f"{mount}/{name}".strip("/").split("/")) or {*"?#"} & {
            *mount,
            *name,
        }:
            raise InputError(f"secret {name!r} in {mount!r} is no path within a key-value engine of Vault")
        kind = options.text("kv_version") or "2"
        if kind not in {"1", "2"}:
            raise InputError(f"secret {name!r}: kv_version is {kind!r}, and Vault has 1 and 2")
        failures = hvac.exceptions
        try:
            client = hvac.Client(
                url=address, token=token, namespace=namespace, timeout=_SECONDS, allow_redirects=False,
                session=_session(options),
            )  # fmt: skip
            engine = client.secrets.kv.v1 if kind == "1" else client.secrets.kv.v2
            if kind == "1":
                found = engine.read_secret(name, mount_point=mount)["data"]
            else:
                version = None if options.version is None else int(options.version)
                found = engine.read_secret_version(
                    name, version=version, mount_point=mount, raise_on_deleted_version=True
                )["data"]["data"]
        except failures.InvalidPath:
            raise NotFound(f"Vault has no secret {name!r} in {mount!r}") from None
        except (failures.Forbidden, failures.Unauthorized):
            raise Denied(f"Vault does not let this token read {name!r} in {mount!r}") from None
        except failures.InvalidRequest:
            raise InputError(f"Vault refuses the request for {name!r} in {mount!r}") from None
        except (failures.VaultError, requests.exceptions.RequestException) as problem:
            raise Unavailable(f"Vault does not answer for {name!r}: {type(problem).__name__}") from None
        except (KeyError, TypeError, ValueError):
            raise Unavailable(f"Vault's answer for {name!r} is not that of a key-value engine {kind}") from None
        return {key: item if isinstance(item, str) else json.dumps(item) for key, item in found.items()}

    def _login(self, identity: Mapping[str, Any] | None) -> tuple[str, str, str | None]:
        if identity is not None:
            namespace = identity.get("namespace")
            return (
                needed(identity, "url", "address", "vault_addr", what="Vault"),
                needed(identity, "token", "vault_token", what="Vault"),
                None if namespace is None else str(namespace),
            )
        address, token = self._environ.get("VAULT_ADDR"), self._environ.get("VAULT_TOKEN")
        if not address or not token:
            raise ConfigError(
                "Vault's address and token are not known",
                hint="set VAULT_ADDR and VAULT_TOKEN, or name a credential with url and token in the entry's auth",
            )
        return address, token, self._environ.get("VAULT_NAMESPACE")


def _session(options: FetchOptions) -> Any:
    """Return connections that are judged where the credential chose the address; the process's own Vault is its own."""
    return None if options.identity is None or options.reach.anywhere else guarded_session(options.reach)
