"""Google's tokens: a service account, and an audience for one of identity, go in, a token and its lifetime come out."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from noetl.credentials.providers.gcp import CLOUD, service_account
from noetl.credentials.providers.port import client_library
from noetl.errors import Denied, InputError, Unavailable
from noetl.model.stream import Scope
from noetl.outgoing.blocking import guarded_session
from noetl.outgoing.reach import ANYWHERE, Reach
from noetl.outgoing.waiting import waited

_DEFAULT_SECONDS = 3_000.0


async def google_id_token(
    name: str, audience: str, identity: Mapping[str, Any] | None, reach: Reach = ANYWHERE, scope: Scope | None = None
) -> tuple[str, float]:
    """Return a token for the audience and how many seconds it lasts."""
    client_library("google.auth", "gcp")
    token = await waited(scope, partial(_fetch, name, audience, identity, reach))
    return token, seconds_left(token, time.time())


async def google_access_token(
    name: str, identity: Mapping[str, Any], reach: Reach = ANYWHERE, scope: Scope | None = None
) -> tuple[str, float]:
    """Return a token for the APIs of Google Cloud and how many seconds it lasts."""
    client_library("google.auth", "gcp")
    return await waited(scope, partial(_access, name, identity, reach)), _DEFAULT_SECONDS


def seconds_left(token: str, now: float) -> float:
    """Return how long a JSON web token lasts, by its own word, which is all that is needed to renew it in time."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(float(claims["exp"]) - now, 0.0)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return _DEFAULT_SECONDS


def _fetch(name: str, audience: str, identity: Mapping[str, Any] | None, reach: Reach) -> str:
    def ask(request: Any) -> str:
        if identity is None:
            return str(client_library("google.oauth2.id_token", "gcp").fetch_id_token(request, audience))
        accounts = client_library("google.oauth2.service_account", "gcp").IDTokenCredentials
        account = _account(name, accounts, identity, target_audience=audience)
        account.refresh(request)
        return str(account.token)

    # With no credential the process asks for itself, at the addresses that Google's client knows.
    return _asked(name, ask, ANYWHERE if identity is None else reach)


def _access(name: str, identity: Mapping[str, Any], reach: Reach) -> str:
    def ask(request: Any) -> str:
        accounts = client_library("google.oauth2.service_account", "gcp").Credentials
        account = _account(name, accounts, identity, scopes=[CLOUD])
        account.refresh(request)
        return str(account.token)

    return _asked(name, ask, reach)


def _asked(name: str, ask: Callable[[Any], str], reach: Reach) -> str:
    failures = client_library("google.auth.exceptions", "gcp")
    transport = client_library("google.auth.transport.requests", "gcp")
    # The address that gives tokens stands in the credential, so whoever wrote that chose it.
    request = transport.Request() if reach.anywhere else transport.Request(session=guarded_session(reach))
    try:
        return ask(request)
    except failures.TransportError as problem:
        raise Unavailable(f"keychain entry {name!r}: Google does not answer ({type(problem).__name__})") from None
    except (failures.GoogleAuthError, ValueError) as problem:
        raise Denied(f"keychain entry {name!r}: Google gives no token ({type(problem).__name__})") from None


def _account(name: str, accounts: Any, identity: Mapping[str, Any], **wanted: Any) -> Any:
    try:
        return accounts.from_service_account_info(dict(service_account(identity)), **wanted)
    except ValueError:
        raise InputError(f"keychain entry {name!r}: its credential is no service account") from None
