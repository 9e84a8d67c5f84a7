"""Credentials by name. Their values go in and come out sealed alone, for workers, whose tools need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, field

from noetl.api.access.sealing import SealedAnswer, sealed
from noetl.api.endpoint import ADMINS, ONLY_WORKERS, READERS, Call, Routes
from noetl.api.wire import Body, Name, Text, View
from noetl.errors import Unsupported
from noetl.services.credentials.secret import revealed
from noetl.services.credentials.store import CredentialStore, CredentialView

routes = Routes("credentials")


class CredentialRequest(Body, frozen=True, kw_only=True):
    """A credential to keep, in place of one of the same name."""

    name: Name
    type: Name
    data: dict[str, Any]
    description: Text | None = None
    tags: Annotated[list[Name], Meta(max_length=100)] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)


class CredentialList(View, frozen=True, kw_only=True):
    """All credentials, by name."""

    credentials: Sequence[CredentialView]


class TypeQuery(Body, frozen=True, kw_only=True):
    """Which type to list."""

    type: Name | None = None


class CredentialName(Body, frozen=True, kw_only=True):
    """Which credential a worker's tool needs."""

    name: Name


@routes.post("/api/credentials", ADMINS, status=201, repeatable=True)
async def put_credential(call: Call, body: CredentialRequest) -> CredentialView:
    """Keep a credential, encrypted."""
    return await _store(call).put(
        call.scope, body.name, body.type, body.data, description=body.description, tags=body.tags, meta=body.meta
    )


@routes.get("/api/credentials", READERS)
async def list_credentials(call: Call, query: TypeQuery) -> CredentialList:
    """List what may be shown of all credentials."""
    return CredentialList(credentials=await _store(call).list(call.scope, query.type))


@routes.get("/api/credentials/{name}", READERS)
async def get_credential(call: Call, name: str) -> CredentialView:
    """Return what may be shown of a credential: never its values."""
    return await _store(call).describe(call.scope, name)


@routes.post("/api/worker/credential", ONLY_WORKERS)
async def give_credential(call: Call, body: CredentialName) -> SealedAnswer:
    """Give a worker a credential for its tools: sealed are `name`, `type` and `data`."""
    found = await _store(call).get(call.scope, body.name)
    return sealed(call, {"name": found.name, "type": found.type, "data": revealed(found.data)})


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
