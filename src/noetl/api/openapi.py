"""OpenAPI 3.1 from the declarations of the routes: what is documented is what is served."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from noetl.api.endpoint import Endpoint
from noetl.api.problems import MEDIA_TYPE, Problem
from noetl.model.ids import ID_PATTERN

_ID: dict[str, Any] = {"type": "string", "pattern": ID_PATTERN}
_REF = "#/components/schemas/{name}"
_REFUSALS = {
    "400": "What was sent is not valid.",
    "401": "No good token.",
    "403": "The token's role may not call this.",
    "404": "There is no such thing.",
    "409": "Somebody else was first, or the work is not this worker's any more.",
    "413": "More bytes than are taken at once.",
    "422": "The idempotency key was used before with other content.",
    "429": "Too many requests; try again later.",
    "503": "A server that is needed does not answer; try again.",
}


def document(endpoints: list[Endpoint], version: str) -> dict[str, Any]:
    """Return the description of all endpoints."""
    kinds = list(dict.fromkeys(kind for one in endpoints for kind in (one.body, one.answer) if _is_struct(kind)))
    kinds.append(Problem)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    # Defaults that are tuples in code are arrays here as in JSON.
    components = msgspec.json.decode(msgspec.json.encode(components))
    refs = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(one.template, {})[one.method.lower()] = _operation(one, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "NoETL", "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": _with_text_ids(dict(sorted(components.items()))),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Endpoint, refs: dict[Any, Any]) -> dict[str, Any]:
    summary, _, description = one.sentence.partition("\n")
    found: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.noun],
        "summary": summary,
        "parameters": [*_path_parameters(one), *_query_parameters(one), *_header_parameters(one)],
        "responses": _responses(one, refs),
        "security": [] if one.roles is None else [{"token": []}],
    }
    if description.strip():
        found["description"] = description.strip()
    if one.roles is not None:
        found["x-noetl-roles"] = sorted(one.roles)
    if one.refuses_key:
        found["x-noetl-no-key"] = True
    if one.body is not None:
        content = {"application/json": {"schema": refs[one.body]}}
        found["requestBody"] = {"required": not one.body_optional, "content": content}
    return found


def _path_parameters(one: Endpoint) -> list[dict[str, Any]]:
    kinds: dict[type, dict[str, Any]] = {int: _ID, UUID: {"type": "string", "format": "uuid"}}
    return [
        {"name": name, "in": "path", "required": True, "schema": kinds.get(kind, {"type": "string", "minLength": 1})}
        for name, kind in one.parameters.items()
    ]


def _query_parameters(one: Endpoint) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    _, components = msgspec.json.schema_components([one.query], ref_template=_REF)
    schema = components[one.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(given)}
        for name, given in schema["properties"].items()
    ]


def _header_parameters(one: Endpoint) -> list[dict[str, Any]]:
    if one.method == "GET" and one.roles is not None:
        token = {"type": "string", "pattern": r"^nrt1\.[A-Za-z0-9_-]+$"}
        return [{"name": "Noetl-Read-Token", "in": "header", "required": False, "schema": token}]
    if not one.keyed:
        return []
    schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema}]


def _responses(one: Endpoint, refs: dict[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if one.status != 204:
        schema = refs[one.answer] if _is_struct(one.answer) else {"type": "object"}
        content = schema if one.media_type == "application/json" else {}
        good["content"] = {one.media_type: {"schema": content}}
    found = {str(one.status): good}
    if one.status == 201:
        found["200"] = {**good, "description": "It stood already."}
    problem = {MEDIA_TYPE: {"schema": refs[Problem]}}
    for status, words in _REFUSALS.items():
        found.setdefault(status, {"description": words, "content": problem})
    return found


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _with_text_ids(schema: Any) -> Any:
    """Say that ids are text, as they are in JSON: a number that has a pattern is an `Id64`."""
    if isinstance(schema, list):
        return [_with_text_ids(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "integer" and "pattern" in schema:
        return _ID | {name: value for name, value in schema.items() if name not in _ID}
    return {name: _with_text_ids(one) for name, one in schema.items()}


def _without_null(given: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what may be absent is absent."""
    options = [option for option in given.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        return dict(options[0])
    if "enum" in given:
        return {**given, "enum": [value for value in given["enum"] if value is not None]}
    return {name: value for name, value in given.items() if not (name == "default" and value is None)}
