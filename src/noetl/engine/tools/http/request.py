"""Makes a request of a task's rendered options, and the bytes that go over the wire. Nothing is sent here."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import orjson
from yarl import URL

from noetl.engine.tools.http.auth import NONE, Proof
from noetl.engine.tools.json_text import write_json
from noetl.engine.tools.port import Call
from noetl.errors import InputError


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


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_STEERING = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_USUAL = (
    ("user-agent", "User-Agent: noetl"),
    ("accept", "Accept: */*"),
    ("accept-encoding", "Accept-Encoding: gzip, deflate"),
)

_BARE = "".join(f"\r\n{line}" for _, line in _USUAL) + "\r\n\r\n"


def is_plain(request: Request) -> bool:
    """Tell whether a request is of the everyday kind: its body is bytes and no header says how it is to travel."""
    return (
        not isinstance(request.body, tuple)
        and request.method != "HEAD"
        and not any(name.lower() in _STEERING for name in request.headers)
    )


def written(request: Request) -> bytes:
    """Return the bytes of a plain request."""
    url, body = request.url, request.body
    assert not isinstance(body, tuple)
    if not request.headers and body is None and url.raw_user is None and request.method in _WITHOUT_BODY:
        return f"{request.method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}{_BARE}".encode()
    given = {name.lower() for name in request.headers}
    lines = [f"{request.method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [line for name, line in _USUAL if name not in given]
    if url.raw_user is not None and "authorization" not in given:
        pair = f"{url.user or ''}:{url.password or ''}"
        lines.append("Authorization: Basic " + base64.b64encode(pair.encode()).decode())
    if body is not None or request.method not in _WITHOUT_BODY:
        lines.append(f"Content-Length: {len(body or b'')}")
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if not _is_token(request.method) or not all(map(_is_token, request.headers)):
        raise ValueError("the method or the name of a header has characters that cannot be sent")
    head = "\r\n".join((*lines, "", ""))
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1 or "\0" in head:
        raise ValueError("a header has a line break in it")
    return head.encode() + (body or b"")


@lru_cache(maxsize=1024)
def _is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None
