"""Credentials by name. Their values go in and never come out, but for workers, whose tools need them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, field

from noetl.api.endpoint import ADMINS, ANYONE, READERS, Call, Routes
from noetl.api.wire import Body, Name, Text, View
from noetl.credentials.secret import revealed
from noetl.credentials.store import CredentialInfo, CredentialStore
from noetl.errors import Denied, Unsupported

routes = Routes("credentials")


class CredentialRequest(Body, frozen=True, kw_only=True):
    """A credential to keep, in place of one of the same name."""

    name: Name
    type: Name
    data: dict[str, Any]
    description: Text | None = None
    tags: Annotated[list[Name], Meta(max_length=100)] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)


class CredentialView(View, frozen=True, kw_only=True):
    """What may be shown of a credential; `data` is given to workers alone, when they ask for it."""

    name: str
    type: str
    fields: list[str]
    description: str | None
    tags: list[str]
    meta: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    data: dict[str, Any] | None = None


class CredentialList(View, frozen=True, kw_only=True):
    """All credentials, by name."""

    credentials: list[CredentialView]


class TypeQuery(Body, frozen=True, kw_only=True):
    """Which type to list."""

    type: Name | None = None


class DataQuery(Body, frozen=True, kw_only=True):
    """Whether the values are wanted."""

    include_data: bool = False


@routes.post("/api/credentials", ADMINS, status=201)
async def put_credential(call: Call, body: CredentialRequest) -> CredentialView:
    """Keep a credential, encrypted."""
    info = await _store(call).put(
        call.scope, body.name, body.type, body.data, description=body.description, tags=body.tags, meta=body.meta
    )
    return _view(info)


@routes.get("/api/credentials", READERS)
async def list_credentials(call: Call, query: TypeQuery) -> CredentialList:
    """List what may be shown of all credentials."""
    return CredentialList(credentials=[_view(info) for info in await _store(call).list(call.scope, query.type)])


@routes.get("/api/credentials/{name}", ANYONE)
async def get_credential(call: Call, name: str, query: DataQuery) -> CredentialView:
    """Return what may be shown of a credential; a worker may ask for its values with `include_data`."""
    store = _store(call)
    if query.include_data and "worker" not in call.caller.roles:
        raise Denied("the values of credentials are given to workers alone", hint="ask without include_data")
    info = await store.describe(call.scope, name)
    data = dict((await store.get(call.scope, name)).data) if query.include_data else None
    return _view(info, data)


@routes.delete("/api/credentials/{name}", ADMINS, status=204)
async def delete_credential(call: Call, name: str) -> None:
    """Remove a credential."""
    await _store(call).delete(call.scope, name)


def _store(call: Call) -> CredentialStore:
    if call.services.credentials is None:
        raise Unsupported(
            "this server has no master key, so it keeps no credentials",
            hint="give it NOETL_SECRET_KEY or a key directory, as docs/operations.md says",
        )
    return call.services.credentials


def _view(info: CredentialInfo, data: dict[str, Any] | None = None) -> CredentialView:
    return CredentialView(
        name=info.name,
        type=info.type,
        fields=list(info.fields),
        description=info.description,
        tags=list(info.tags),
        meta=info.meta,
        created_at=info.created_at,
        updated_at=info.updated_at,
        data=None if data is None else revealed(data),
    )
