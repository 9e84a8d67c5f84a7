"""Asks for tokens at OAuth 2.0 endpoints and at Google: the entry's data go in, a token and its lifetime come out.

Neither what was sent nor what came back ever stands in an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlsplit, urlunsplit

import msgspec

from noetl.errors import Denied, InputError, Unavailable
from noetl.kernel.outgoing.blocking_sessions import guarded_session
from noetl.kernel.outgoing.blocking_threads import waited
from noetl.kernel.outgoing.guard import ANYWHERE, AddressRefused, Reach
from noetl.model.stream import Scope
from noetl.services.credentials.providers.gcp import CLOUD, service_account
from noetl.services.credentials.providers.port import client_library

_SECONDS = 30.0
_METHODS = frozenset({"GET", "POST", "PUT"})
_NOT_THE_AUTHORS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade"})
"""Headers that say where a request goes and where it ends, which an entry does not choose."""
_CODES = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "access_denied",
    }
)
"""The words of the standard; any other text of the server may repeat what it was sent."""


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a token, ready to be sent."""

    endpoint: str
    method: str = "POST"
    headers: dict[str, str] = {}
    data: dict[str, Any] = {}
    basic: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"TokenRequest({self.method} {shown_url(self.endpoint)})"


def token_request(
    name: str, options: Mapping[str, Any], credential: Mapping[str, Any], refresh_token: str | None
) -> TokenRequest:
    """Put a request together from an entry's options, its credential and the newest refresh token."""
    endpoint = (
        options.get("endpoint")
        or credential.get("endpoint")
        or credential.get("token_url")
        or credential.get("token_uri")
    )
    if not endpoint or urlsplit(str(endpoint)).scheme not in {"http", "https"}:
        raise InputError(f"keychain entry {name!r}: endpoint is not the http or https address of a token server")
    data = {key: credential[key] for key in ("client_id", "client_secret", "scope", "audience") if credential.get(key)}
    refresh = refresh_token or credential.get("refresh_token")
    if refresh:
        data |= {"grant_type": "refresh_token", "refresh_token": refresh}
    given = dict(options.get("data") or {})
    if refresh_token is not None and given.get("grant_type") == "refresh_token":
        # The server may have replaced the refresh token that the playbook names; only the newest is good.
        given.pop("refresh_token", None)
    data = {"grant_type": "client_credentials"} | data | given
    basic = None
    if (options.get("client_auth") or credential.get("client_auth")) == "basic":
        basic = (str(data.pop("client_id", "")), str(data.pop("client_secret", "")))
    headers = {str(key): str(value) for key, value in dict(options.get("headers") or {}).items()}
    method = str(options.get("method") or "POST").upper()
    if method not in _METHODS:
        raise InputError(f"keychain entry {name!r}: a token server is asked by {', '.join(sorted(_METHODS))}")
    if wrong := sorted(key for key in headers if key.lower() in _NOT_THE_AUTHORS):
        raise InputError(f"keychain entry {name!r}: the header {wrong[0]} is not one that an entry gives")
    return TokenRequest(
        endpoint=str(endpoint),
        method=method,
        headers=headers,
        data=data,
        basic=basic,
    )


async def ask_for_token(name: str, request: TokenRequest, reach: Reach = ANYWHERE) -> dict[str, Any]:
    """Send the request and return the fields of the answer."""
    from noetl.kernel.outgoing.guarded_request import (
        ask,  # the few processes that ask wait for its client, not every command
    )

    where = f"keychain entry {name!r}: the token server {shown_url(request.endpoint)}"
    as_json = "json" in next((value for key, value in request.headers.items() if key.lower() == "content-type"), "")
    headers = request.headers if request.basic is None else {**request.headers, "Authorization": _basic(request.basic)}
    form = {key: value if isinstance(value, str) else str(value) for key, value in request.data.items()}
    body: dict[str, Any] = {"json": request.data} if as_json else {"data": form}
    if request.method == "GET":
        body = {"params": form}
    try:
        # A redirect would carry the client's secret to an address nobody named, and none is followed.
        found = await ask(request.method, request.endpoint, reach, headers=headers, seconds=_SECONDS, **body)
    except AddressRefused as refused:
        raise Denied(f"{where} may not be asked: {refused.message}", hint=refused.hint) from None
    except Unavailable as problem:
        raise Unavailable(f"{where} does not answer: {problem.message}") from None
    status, answer = found.status, _object(found.body if found.whole else b"")
    if status == 429 or status >= 500:
        raise Unavailable(f"{where} answered with status {status}")
    if status >= 300:
        code = answer.get("error")
        reason = f" and {code}" if code in _CODES else ""
        raise Denied(f"{where} gives no token: it answered with status {status}{reason}")
    if not answer:
        raise Unavailable(f"{where} answered with something that is no JSON object")
    return answer


def shown_url(url: str) -> str:
    """Return an address without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _basic(client: tuple[str, str]) -> str:
    # The standard has both form-encoded first, so that an id with a colon stays one.
    return "Basic " + base64.b64encode(":".join(map(quote_plus, client)).encode()).decode()


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


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
