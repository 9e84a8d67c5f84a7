"""Makes a request of an http task's rendered options: address, headers and body. Nothing is sent here."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from yarl import URL

from noetl.errors import InputError
from noetl.execute.tools.http_auth import NONE, Proof
from noetl.execute.tools.json_text import write_json
from noetl.execute.tools.port import Call


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form in parts, a file if it has a name of its own."""

    name: str
    content: str | bytes
    filename: str | None = None
    media_type: str | None = None


Body = bytes | tuple[Part, ...] | None
"""A form in parts is written when it is sent, because a boundary goes with it."""

_KEYED_METHODS = frozenset({"POST", "PATCH"})
_NO_NAMES: frozenset[str] = frozenset()
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_FORMS = (_FORM, "multipart/")


class BadRequest(InputError):
    """The http task's options make no request."""

    code = "request_invalid"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to be sent."""

    method: str
    url: URL
    headers: dict[str, str]
    body: Body
    secret: frozenset[str]
    """Lower-case names of the headers, and names of the query parameters, that only the first origin may see."""


def build(call: Call, proof: Proof) -> Request:
    """Return the request a call describes."""
    options = call.options
    method = str(options.get("method") or "GET").upper()
    headers = _headers(options.get("headers"))
    body = options.get("body")
    payload: Body = None
    if body is not None:
        named = next((name for name in headers if name.lower() == "content-type"), None)
        payload, media_type = _body(body, str(options.get("body_kind") or "body"), headers[named] if named else "")
        if isinstance(payload, tuple) and named:
            # The boundary is made with the form; a content type of the user's names none.
            del headers[named]
        elif media_type and named is None:
            headers["Content-Type"] = media_type
    if method in _KEYED_METHODS and not any(name.lower() == "idempotency-key" for name in headers):
        headers["Idempotency-Key"] = call.key
    url = _url(str(options.get("url") or ""), options.get("params"), proof.query)
    if proof is NONE:
        return Request(method, url, headers, payload, _NO_NAMES)
    headers.update(proof.headers)
    secret = {name.lower() for name in proof.headers} | set(proof.query)
    return Request(method, url, headers, payload, frozenset(secret))


def _headers(named: Any) -> dict[str, str]:
    if not named:
        return {}
    if not isinstance(named, Mapping):
        raise BadRequest("`headers` of an http task is a mapping")
    return {str(name): str(value) for name, value in named.items() if value is not None}


def _url(text: str, params: Any, query: Mapping[str, str]) -> URL:
    try:
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError
        pairs = [*_pairs(params), *query.items()] if params else [*query.items()]
        return url.extend_query(pairs) if pairs else url
    except ValueError:
        raise BadRequest("`url` of the http task is no http:// or https:// address with a host") from None


def _pairs(params: Any) -> Iterator[tuple[str, str]]:
    """Yield names and texts; a list repeats its name, nothing is left out but None."""
    if isinstance(params, Mapping):
        items = list(params.items())
    else:
        if isinstance(params, str) or not isinstance(params, Iterable):
            raise BadRequest("`params` and `form` of an http task are mappings or lists of pairs")
        items = list(params)
        if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
            raise BadRequest("`params` and `form` of an http task are mappings or lists of pairs")
    for name, value in items:
        if type(value) is str:
            yield str(name), value
        elif type(value) is int:
            yield str(name), str(value)
        else:
            for each in _flat(value):
                yield str(name), each


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, Mapping):
        yield write_json(value).decode()
    elif value is not None:
        yield str(value)


def _body(body: Any, kind: str, wanted: str) -> tuple[Body, str | None]:
    """Return the bytes of a body, or what makes them, and their media type; `wanted` is the one the task names."""
    if kind == "json":
        return write_json(body), _JSON
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), _type_of_text(body, kind)
    wanted = wanted.lower()
    is_form = wanted.startswith(_FORMS) or (kind == "form" and _JSON not in wanted)
    if is_form and isinstance(body, Mapping):
        if wanted.startswith("multipart/") or any(_is_file(value) for value in body.values()):
            return tuple(_parts(body)), None
        return urlencode(list(_pairs(body))).encode(), _FORM
    return write_json(body), _JSON


def _type_of_text(text: str, kind: str) -> str:
    if kind != "form" and _is_json(text):
        return _JSON
    return "text/plain; charset=utf-8" if kind == "body" else _FORM


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _is_file(value: Any) -> bool:
    return isinstance(value, Mapping) and "filename" in value and ("content" in value or "content_base64" in value)


def _parts(body: Mapping[str, Any]) -> Iterator[Part]:
    for name, value in body.items():
        if _is_file(value):
            media_type = str(value.get("content_type") or "application/octet-stream")
            yield Part(str(name), _content(value), str(value["filename"]), media_type)
        else:
            for each in _flat(value):
                yield Part(str(name), each)


def _content(value: Mapping[str, Any]) -> bytes:
    if "content_base64" in value:
        try:
            return base64.b64decode(str(value["content_base64"]), validate=True)
        except binascii.Error:
            raise BadRequest("`content_base64` of a file in the http task's form is no base64") from None
    content = value["content"]
    return content if isinstance(content, bytes) else str(content).encode()
