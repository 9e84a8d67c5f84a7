"""Writes requests as they go over the wire: a request goes in, its bytes come out, or ValueError if it would break."""

from __future__ import annotations

import base64
import re
from functools import lru_cache

from noetl.execute.tools.http_request import Request

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
