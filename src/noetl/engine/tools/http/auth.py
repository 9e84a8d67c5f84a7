"""Turns a task's `auth` into the headers and query parameters that carry it. Values never reach a message."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noetl.engine.tools.port import Credentials
from noetl.errors import NoetlError

_TOKEN_FIELDS = ("token", "access_token", "bearer_token", "id_token", "api_token")
_KEY_FIELDS = ("api_key", "value", "key", "token")


class BadAuth(NoetlError):
    """The task's `auth` cannot be used for an HTTP request."""

    code = "credential_invalid"


@dataclass(frozen=True)
class Proof:
    """What shows a server who is asking."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: dict[str, str] = field(default_factory=dict, repr=False)


NONE = Proof()


async def prove(credentials: Credentials, auth: Any) -> Proof:
    """Return the proof that an alias, a literal such as {type: bearer, token: ...}, or a mapping of roles stands for."""
    if not auth:
        return NONE
    if isinstance(auth, str):
        found = await credentials.credential(auth)
        return _proof(found.type, found.data)
    if not isinstance(auth, Mapping):
        raise BadAuth("`auth` of an http task is the name of a credential or a mapping")
    named = auth.get("credential", auth.get("alias"))
    if isinstance(named, str):
        found = await credentials.credential(named)
        return _proof(str(auth.get("type", found.type)), {**found.data, **auth})
    if "type" in auth:
        return _proof(str(auth["type"]), auth)
    proofs = [await prove(credentials, one) for one in auth.values()]
    headers = {name: value for proof in proofs for name, value in proof.headers.items()}
    return Proof(headers, {name: value for proof in proofs for name, value in proof.query.items()})


def _proof(kind: str, data: Mapping[str, Any]) -> Proof:
    kind = kind.lower().replace("-", "_")
    if kind == "basic":
        user = _first(data, ("username", "user"), kind)
        pair = f"{user}:{data.get('password') or ''}"
        return Proof({"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()})
    if kind in ("api_key", "apikey"):
        return _api_key(data)
    if kind in ("header", "headers"):
        given = data.get("headers", data)
        return Proof({str(name): str(value) for name, value in given.items() if name != "type"})
    scheme = str(data.get("token_type") or "Bearer")
    # Servers answer with `bearer` and then insist on `Bearer`.
    scheme = "Bearer" if scheme.lower() == "bearer" else scheme
    return Proof({"Authorization": f"{scheme} {_first(data, _TOKEN_FIELDS, kind)}"})


def _api_key(data: Mapping[str, Any]) -> Proof:
    value = str(data.get("prefix") or "") + _first(data, _KEY_FIELDS, "api_key")
    where = str(data.get("in") or data.get("location") or "header").lower()
    if where == "query":
        return Proof(query={str(data.get("param") or data.get("name") or data.get("key_name") or "api_key"): value})
    name = data.get("header") or data.get("header_name") or data.get("name") or data.get("key_name") or "X-API-Key"
    return Proof({str(name): value})


def _first(data: Mapping[str, Any], names: tuple[str, ...], kind: str) -> str:
    for name in names:
        if data.get(name):
            return str(data[name])
    raise BadAuth(f"the {kind} credential of the http task has none of: {', '.join(names)}")
