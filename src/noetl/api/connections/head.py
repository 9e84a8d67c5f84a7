"""The head of a request: its target and headers go in, and nothing comes out but a refusal of what two readers may read differently.

A proxy in front and this server must agree where a request ends and whom it is for; what leaves that open is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from noetl.api.connections.refusals import Refusal, Refused

Headers = Iterable[tuple[bytes, bytes]]


def check_head(method: bytes, target: bytes, version: str, headers: Headers, *, upgrade: bool) -> None:
    """Refuse a head that is ambiguous; names of headers are in lower case."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    hosts = values.get(b"host", [])
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise _malformed("a request has exactly one Host header")
    if not target.startswith(b"/"):
        _check_absolute(method, target, hosts[0] if hosts else b"")
    coding = values.get(b"transfer-encoding", [])
    if coding and (version != "1.1" or [one.strip().lower() for one in coding] != [b"chunked"]):
        raise _malformed("the only Transfer-Encoding that is taken is chunked, once, in HTTP/1.1")
    if len(values.get(b"content-length", [])) > 1:
        raise _malformed("a request has one Content-Length")
    # The parser ends a request that asks for an upgrade at its headers, and would read its body as the next request.
    if upgrade and (coding or values.get(b"content-length", [b"0"]) != [b"0"]):
        raise _malformed("a request that asks for another protocol has no body")


def _check_absolute(method: bytes, target: bytes, host: bytes) -> None:
    """Refuse every target that is no path, but a URL of the host that the request names."""
    scheme, found, rest = target.partition(b"://")
    if method == b"CONNECT" or not found or scheme.lower() != b"http":
        raise _malformed("the target of a request is a path")
    if rest.partition(b"/")[0].partition(b"?")[0].lower() != host.lower():
        raise _malformed("the target names another host than the Host header")


def _malformed(detail: str) -> Refused:
    return Refused(Refusal("request", 400, detail))
