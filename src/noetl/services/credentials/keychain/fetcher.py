"""How each kind of keychain entry is fetched: the entry, rendered, goes in; its fields and their lifetime come out."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from noetl.engine.tools.port import Credential
from noetl.errors import Denied, InputError, NotFound, OutsideUnavailable, Unavailable
from noetl.kernel.outgoing.guard import Rights, own_rights
from noetl.language.playbook.model import KeychainEntry
from noetl.model.stream import Scope
from noetl.services.credentials.credential_types import shown_fields
from noetl.services.credentials.keychain.token_requests import (
    ask_for_token,
    google_access_token,
    google_id_token,
    token_request,
)
from noetl.services.credentials.providers.port import WHOLE, FetchOptions
from noetl.services.credentials.providers.registry import OWN, Providers
from noetl.services.credentials.store import CredentialStore

REMOTE = frozenset({"oauth2", "secret_manager", "google_id_token", "token"})
"""Kinds that ask a server, and are therefore kept."""

_TOKEN_SECONDS = 300.0
_SECRET_SECONDS = 3_600.0
_TOKEN_SHOWN = frozenset({"token_type", "expires_in", "scope"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fetched:
    """The fields of an entry, how many seconds they hold, and which fields are no secrets."""

    fields: dict[str, Any] = field(repr=False)
    seconds: float = _SECRET_SECONDS
    shown: frozenset[str] = frozenset()


class Fetcher:
    """Fetches entries anew each time."""

    def __init__(self, credentials: CredentialStore, providers: Providers, rights: Rights = own_rights) -> None:
        self._credentials = credentials
        self._providers = providers
        self._rights = rights

    async def fetch(self, scope: Scope, entry: KeychainEntry, before: Mapping[str, Any]) -> Fetched:
        """Fetch an entry; `before` are the fields it had, of which a refresh token is used again."""
        match entry.kind:
            case "static":
                return Fetched(_mapping(entry, "data", needed=True))
            case "credential":
                found = await self._credentials.get(scope, entry.auth or entry.name)
                return Fetched(dict(found.data), shown=shown_fields(found.type))
            case "bearer":
                return Fetched(await self._bearer(scope, entry))
            case "oauth2":
                return await self._oauth2(scope, entry, before)
            case "token":
                return await self._token(scope, entry, before)
            case "secret_manager":
                return await self._secret(scope, entry)
            case "google_id_token":
                return await self._google(scope, entry)

    async def _bearer(self, scope: Scope, entry: KeychainEntry) -> dict[str, Any]:
        data = entry.options if entry.auth is None else (await self._credentials.get(scope, entry.auth)).data
        token = data.get("token") or data.get("access_token")
        if not token:
            raise InputError(f"keychain entry {entry.name!r}: neither auth nor token gives a bearer token")
        return _both(token)

    async def _oauth2(self, scope: Scope, entry: KeychainEntry, before: Mapping[str, Any]) -> Fetched:
        login = await self._login(scope, entry)
        request = token_request(
            entry.name, entry.options, {} if login is None else login.data, before.get("refresh_token")
        )
        reach = (await self._rights(scope)).reach
        with _theirs():
            fields = await ask_for_token(entry.name, request, reach)
        if "refresh_token" not in fields and "refresh_token" in before:
            fields["refresh_token"] = before["refresh_token"]
        seconds = _seconds(fields.get("expires_in")) or entry.ttl or _TOKEN_SECONDS
        return Fetched(fields, min(seconds, entry.ttl or seconds), _TOKEN_SHOWN)

    async def _token(self, scope: Scope, entry: KeychainEntry, before: Mapping[str, Any]) -> Fetched:
        """Return the access token of a credential: its own, that of its token server, or Google's for its account."""
        login = await self._credentials.get(scope, entry.auth or entry.name)
        token = login.data.get("token") or login.data.get("access_token")
        if token:
            return Fetched(_both(token), _TOKEN_SECONDS)
        if login.type == "service_account":
            reach = (await self._rights(scope)).reach
            with _theirs():
                token, seconds = await google_access_token(entry.name, login.data, reach, scope)
            return Fetched(_both(token), min(seconds, entry.ttl or seconds))
        fetched = await self._oauth2(scope, entry, before)
        if "access_token" not in fetched.fields:
            raise InputError(f"keychain entry {entry.name!r}: the credential {login.name!r} gives no access token")
        return dataclasses.replace(fetched, fields=fetched.fields | _both(fetched.fields["access_token"]))

    async def _secret(self, scope: Scope, entry: KeychainEntry) -> Fetched:
        provider = str(entry.options.get("provider") or "")
        if not provider:
            raise InputError(f"keychain entry {entry.name!r} names no provider")
        _check_residency(entry)
        login, granted = await self._login(scope, entry), await self._rights(scope)
        if login is None or provider in OWN:
            granted.check(provider, scope)
        options = FetchOptions(
            scope=scope,
            reach=granted.reach,
            identity=None if login is None else login.data,
            region=_text(entry, "region"),
            version=_text(entry, "version"),
            more=entry.options,
        )
        wanted = _mapping(entry, "map")
        with _theirs():
            if wanted:
                fields = {out: await self._field(entry, provider, str(place), options) for out, place in wanted.items()}
            else:
                secret = _text(entry, "secret") or _text(entry, "path") or entry.name
                fields = dict(await self._providers.fetch(provider, secret, options))
        return Fetched(fields, entry.ttl or _SECRET_SECONDS)

    async def _field(self, entry: KeychainEntry, provider: str, place: str, options: FetchOptions) -> Any:
        secret, _, wanted = place.partition("#")
        fields = await self._providers.fetch(provider, secret, options)
        if not wanted:
            return fields[WHOLE] if set(fields) == {WHOLE} else fields
        if wanted not in fields:
            raise NotFound(f"keychain entry {entry.name!r}: the secret {secret!r} has no field {wanted!r}")
        return fields[wanted]

    async def _google(self, scope: Scope, entry: KeychainEntry) -> Fetched:
        audience = _text(entry, "target_audience") or _text(entry, "audience") or _text(entry, "endpoint")
        if audience is None:
            raise InputError(f"keychain entry {entry.name!r} names no audience")
        login, granted = await self._login(scope, entry), await self._rights(scope)
        if login is None:
            granted.check("gcp", scope)
        identity = None if login is None else login.data
        with _theirs():
            token, seconds = await google_id_token(entry.name, audience, identity, granted.reach, scope)
        fields = {"token": token, "id_token": token, "token_type": "Bearer", "audience": audience}
        return Fetched(fields, min(seconds, entry.ttl or seconds), frozenset({"token_type", "audience"}))

    async def _login(self, scope: Scope, entry: KeychainEntry) -> Credential | None:
        return None if entry.auth is None else await self._credentials.get(scope, entry.auth)


@contextmanager
def _theirs() -> Iterator[None]:
    """Tell a server of the user's that does not answer from the platform's: work waits for the platform alone."""
    try:
        yield
    except (Unavailable, OSError) as problem:
        # Without what it came from, which may repeat what was sent.
        told = problem.message if isinstance(problem, Unavailable) else type(problem).__name__
        hint = problem.hint if isinstance(problem, Unavailable) else None
        raise OutsideUnavailable(told, hint=hint) from None


def _both(token: str) -> dict[str, Any]:
    """Return a token by the two names it is read by."""
    return {"token": token, "access_token": token}


def _mapping(entry: KeychainEntry, name: str, *, needed: bool = False) -> dict[str, Any]:
    value = entry.options.get(name)
    if value is None and not needed:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"keychain entry {entry.name!r}: {name} is not an object with named fields")
    return dict(value)


def _text(entry: KeychainEntry, name: str) -> str | None:
    value = entry.options.get(name)
    return None if value in (None, "") else str(value)


def _seconds(value: Any) -> float:
    try:
        return max(float(value), 0.0)
    except (TypeError, ValueError):
        return 0.0


def _check_residency(entry: KeychainEntry) -> None:
    """Hold an entry to the regions it may come from; `strict` refuses, `advisory` warns."""
    rule, allowed = entry.options.get("residency", "none"), entry.options.get("allowed_regions") or []
    region = _text(entry, "region")
    if rule == "none" or region in allowed:
        return
    message = f"keychain entry {entry.name!r}: region {region or 'unknown'} is not among its allowed regions"
    if rule != "advisory":
        raise Denied(message)
    _log.warning(message)
