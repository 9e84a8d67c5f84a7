"""Secrets from Google Cloud Secret Manager."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from noetl.errors import ConfigError, Denied, InputError, NotFound, Unavailable
from noetl.kernel.outgoing.blocking_sessions import guarded_session
from noetl.kernel.outgoing.blocking_threads import waited
from noetl.kernel.outgoing.guard import Reach
from noetl.services.credentials.providers.port import FetchOptions, client_library, fields_of

CLOUD = "https://www.googleapis.com/auth/cloud-platform"
_SECONDS = 30.0
_TOKENS = "https://oauth2.googleapis.com/token"
_HOSTS = re.compile(r"(?:[a-z0-9-]+\.)+googleapis\.com")
_REGION = re.compile(r"[a-z0-9-]{1,63}")


class GcpSecrets:
    """Reads as the service account of the credential, or as the identity of the process (workload identity, ADC)."""

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of `projects/P/secrets/S[/versions/V]`, or of `S` with the further option `project`."""
        client_library("google.cloud.secretmanager", "gcp")
        return await waited(options.scope, partial(_read, resource_name(name, options), options))


def resource_name(name: str, options: FetchOptions) -> str:
    """Return the full name of a secret's version."""
    if not name.startswith("projects/"):
        identity = options.identity or {}
        project = options.text("project") or options.text("project_id") or identity.get("project_id")
        if not project:
            raise ConfigError(
                f"secret {name!r}: no Google Cloud project is given", hint="set project, or the full name"
            )
        place = f"/locations/{options.region}" if options.region else ""
        name = f"projects/{project}{place}/secrets/{name}"
    return name if "/versions/" in name else f"{name}/versions/{options.version or 'latest'}"


def service_account(identity: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the service account in a credential's data, which may hold it as JSON text."""
    text = identity.get("service_account_json")
    if text is None:
        return identity
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise InputError("service_account_json in the credential is not a JSON object")
    return found


def _read(name: str, options: FetchOptions) -> dict[str, str]:
    failures = client_library("google.api_core.exceptions", "gcp")
    login_failures = client_library("google.auth.exceptions", "gcp")
    try:
        answer = _client(options).access_secret_version(request={"name": name}, timeout=_SECONDS)
    except failures.NotFound:
        raise NotFound(f"Google Cloud has no secret {name!r}") from None
    except (failures.PermissionDenied, failures.Unauthenticated, login_failures.GoogleAuthError) as problem:
        raise Denied(
            f"Google Cloud does not let this identity read the secret {name!r} ({type(problem).__name__})"
        ) from None
    except failures.InvalidArgument:
        raise InputError(f"Google Cloud refuses the name {name!r} of a secret") from None
    except failures.GoogleAPIError as problem:
        raise Unavailable(f"Google Cloud does not answer for the secret {name!r}: {type(problem).__name__}") from None
    try:
        return fields_of(answer.payload.data.decode())
    except UnicodeDecodeError:
        raise InputError(f"the secret {name!r} is not UTF-8 text") from None


def _with_a_token(account: Any, reach: Reach) -> Any:
    """Ask for a token where connections are judged, and return it alone: nobody asks for another with a session of their own."""
    transport = client_library("google.auth.transport.requests", "gcp")
    account.refresh(transport.Request(session=guarded_session(reach)))
    return client_library("google.oauth2.credentials", "gcp").Credentials(token=account.token)


def _client(options: FetchOptions) -> Any:
    secretmanager = client_library("google.cloud.secretmanager", "gcp")
    login = {}
    if options.region and not _REGION.fullmatch(options.region):
        raise InputError(f"{options.region[:40]!r} is no region of Google Cloud")
    if options.identity is not None:
        accounts = client_library("google.oauth2.service_account", "gcp")
        info = dict(service_account(options.identity))
        options.reach.refuse_others(str(info.get("token_uri") or _TOKENS), _HOSTS, "Google's hosts")
        try:
            account = accounts.Credentials.from_service_account_info(info, scopes=[CLOUD])
        except ValueError:
            raise InputError("the credential for Google Cloud is no service account") from None
        login["credentials"] = account if options.reach.anywhere else _with_a_token(account, options.reach)
    if options.region:
        login["client_options"] = {"api_endpoint": f"secretmanager.{options.region}.rep.googleapis.com"}
    return secretmanager.SecretManagerServiceClient(**login)
