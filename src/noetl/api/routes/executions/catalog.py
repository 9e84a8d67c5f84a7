"""Playbooks by path and version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from noetl.api.endpoint import ANYONE, READERS, WRITERS, Answer, Call, Routes
from noetl.api.wire import NO_NUL, Body, Name, ReadTokenText, Version, View, combined
from noetl.engine.catalog.playbooks import CatalogVersion, Registered, catalog_stream
from noetl.errors import NotFound
from noetl.language.templates.template import compile_value
from noetl.model.ids import organization_root_id
from noetl.model.mark import VersionToken

routes = Routes("catalog")

_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"),
)  # fmt: skip


class RegisterRequest(Body, frozen=True, kw_only=True):
    """The source of a playbook."""

    content: Annotated[str, Meta(max_length=4_000_000, pattern=NO_NUL)]
    resource_type: Literal["playbook", "Playbook"] = "playbook"


class CatalogSource(CatalogVersion, frozen=True, kw_only=True):
    """One registered version with its source."""

    content: str


class ChangeAnswer(CatalogVersion, frozen=True, kw_only=True):
    """The version that was changed."""

    read_token: ReadTokenText


class RegisterAnswer(ChangeAnswer, frozen=True, kw_only=True):
    """The version that stands; `created` is false when the same source stood already."""

    created: bool
    warnings: tuple[str, ...]


class CatalogListRequest(Body, frozen=True, kw_only=True):
    """Which paths to list."""

    prefix: Annotated[str, Meta(max_length=255, pattern=NO_NUL)] = ""
    after: Annotated[str, Meta(max_length=255, pattern=NO_NUL)] = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class CatalogList(View, frozen=True, kw_only=True):
    """The newest version in use of each path; `next_after` is null on the last page."""

    entries: Sequence[CatalogVersion]
    next_after: str | None


class PathRequest(Body, frozen=True, kw_only=True):
    """Which path is meant."""

    path: Name


class CatalogVersions(View, frozen=True, kw_only=True):
    """All versions of a path, the oldest first."""

    path: str
    versions: Sequence[CatalogVersion]


class VersionRequest(Body, frozen=True, kw_only=True):
    """Which version is meant."""

    path: Name
    version: Version


class VersionQuery(Body, frozen=True, kw_only=True):
    """Which version to give; the newest one in use unless told."""

    version: Version | None = None


class UiSchema(View, frozen=True, kw_only=True):
    """What a form for a playbook's workload needs."""

    path: str
    version: int
    name: str
    schema: dict[str, Any]


@routes.post("/api/catalog/register", WRITERS, status=201, repeatable=True)
async def register_playbook(call: Call, body: RegisterRequest) -> Answer | RegisterAnswer:
    """Register a playbook under the path it names; the same source again gives the version that stands."""
    done = await call.services.catalog.register(call.scope, body.content)
    answer = combined(RegisterAnswer, done, done.entry, read_token=_token(call, done))
    return Answer(answer, 201 if done.created else 200)


@routes.post("/api/catalog/list", READERS, repeatable=True)
async def list_playbooks(call: Call, body: CatalogListRequest | None = None) -> CatalogList:
    """List the newest version in use of each path, by path."""
    body = body or CatalogListRequest()
    found = await call.services.catalog.newest(call.scope, body.prefix, body.after, body.limit)
    return CatalogList(
        entries=found,
        next_after=found[-1].path if len(found) == body.limit else None,
    )


@routes.post("/api/catalog/resource", READERS, repeatable=True)
async def list_versions(call: Call, body: PathRequest) -> CatalogVersions:
    """List all versions of a path, those taken out of use too."""
    found = await call.services.catalog.versions(call.scope, body.path)
    if not found:
        raise NotFound(f"the catalog has no playbook {body.path}", hint="POST /api/catalog/list shows what there is")
    return CatalogVersions(path=body.path, versions=found)


@routes.post("/api/catalog/delete", WRITERS, repeatable=True)
async def remove_version(call: Call, body: VersionRequest) -> ChangeAnswer:
    """Take a version out of use; executions of it go on."""
    done = await call.services.catalog.set_removed(call.scope, body.path, body.version, removed=True)
    return combined(ChangeAnswer, done.entry, read_token=_token(call, done))


@routes.post("/api/catalog/restore", WRITERS, repeatable=True)
async def restore_version(call: Call, body: VersionRequest) -> ChangeAnswer:
    """Take a version back into use."""
    done = await call.services.catalog.set_removed(call.scope, body.path, body.version, removed=False)
    return combined(ChangeAnswer, done.entry, read_token=_token(call, done))


@routes.get("/api/catalog/{path:path}/ui_schema", READERS)
async def get_ui_schema(call: Call, path: str, query: VersionQuery) -> UiSchema:
    """Describe a playbook's workload as a JSON Schema with its defaults, for a form."""
    entry = await call.services.catalog.get(call.scope, path, query.version)
    playbook = (await call.services.catalog.plan(call.scope, entry.catalog_id)).playbook
    properties = await call.services.catalog.plans.evaluating.run(
        call.scope, lambda: {name: _property(name, value) for name, value in playbook.workload.items()}
    )
    return UiSchema(
        path=entry.path,
        version=entry.version,
        name=playbook.name,
        schema={"type": "object", "title": playbook.name, "properties": properties},
    )


@routes.get("/api/catalog/{path:path}", ANYONE)
async def get_playbook(call: Call, path: str, query: VersionQuery) -> CatalogSource:
    """Return a version with its source, by path or by catalog id."""
    return combined(CatalogSource, await call.services.catalog.get(call.scope, path, query.version))


def _token(call: Call, done: Registered) -> str:
    root = organization_root_id(call.scope.tenant_id, call.scope.organization_id)
    return str(VersionToken(root, catalog_stream(call.scope, done.entry.path).stream_id, done.stream_version))


def _property(name: str, value: Any) -> dict[str, Any]:
    if compile_value(value, name).is_constant:
        return {**_type_of(value), "default": value}
    # What a form gives is data: a template sent back as it stands would never be rendered.
    kind = {} if isinstance(value, str) else _type_of(value)
    return {**kind, "description": "Left out, it is rendered when the execution is requested."}


def _type_of(value: Any) -> dict[str, str]:
    return next(({"type": name} for kind, name in _TYPES if isinstance(value, kind)), {})
