"""Which server a task means: its options and credentials go in, an open channel comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from yarl import URL

from noetl.engine.tools.http.auth import NONE, Proof, prove
from noetl.engine.tools.http.response import place
from noetl.engine.tools.http.session import session_of
from noetl.engine.tools.mcp.messages import Channel
from noetl.engine.tools.mcp.over_http import HttpChannel
from noetl.engine.tools.mcp.over_stdio import StdioChannel
from noetl.engine.tools.port import Call
from noetl.errors import InputError

_PLACES: Final = ("endpoint", "url", "command")
_TOKENS: Final = ("token", "access_token", "bearer_token")


@dataclass(frozen=True)
class Server:
    """Where a server is, or which program it is, and how to prove who asks."""

    name: str
    url: URL | None = field(default=None, repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True

    @property
    def place(self) -> str:
        """What messages call it; no query, user or password."""
        return place("POST", self.url) if self.url is not None else f"the program {self.command[0]}"

    @property
    def endpoint(self) -> str:
        """What results call it."""
        return self.command[0] if self.url is None else str(self.url.with_user(None).with_query(None))

    async def open(self, call: Call) -> Channel:
        """Return a channel; OSError when the program cannot be started."""
        if self.url is None:
            return await StdioChannel.start(self.command, cwd=self.cwd, env=self.env)
        return HttpChannel(await session_of(call.resources), self.url, self.headers, verify=self.verify)


async def server_of(call: Call) -> Server:
    """Return the server a call names: by `endpoint`, by `command`, or by the credential `server` names."""
    options: dict[str, Any] = {**call.options}
    name = str(options.get("server") or "")
    proof = NONE
    if "://" in name:
        options.setdefault("endpoint", name)
    elif not any(options.get(key) for key in _PLACES):
        if not name:
            raise InputError("the mcp tool needs endpoint, command, or server with the name of a credential")
        known = await _known(call, name)
        options = {**known, **{key: value for key, value in options.items() if value is not None}}
        if any(known.get(key) for key in _TOKENS):
            proof = await prove(call.credentials, {**known, "type": "bearer"})
    if call.auth:
        proof = await prove(call.credentials, call.auth)
    return _server(name, options, proof)


async def _known(call: Call, name: str) -> dict[str, Any]:
    # Playbooks name servers by catalog paths such as mcp/files; a credential has no path.
    alias = name.rpartition("/")[2]
    found = await call.credentials.credential(alias)
    if not any(found.data.get(key) for key in _PLACES):
        raise InputError(f"server: the credential {alias!r} has none of {', '.join(_PLACES)}")
    return dict(found.data)


def _server(name: str, options: Mapping[str, Any], proof: Proof) -> Server:
    address = options.get("endpoint") or options.get("url")
    if address:
        return Server(
            name,
            url=_url(str(address), proof),
            headers={**_texts(options, "headers"), **proof.headers},
            verify=options.get("verify_ssl") is not False,
        )
    command, args = options.get("command"), options.get("args") or []
    words = [command] if isinstance(command, str) else command
    if not isinstance(words, list | tuple) or not isinstance(args, list | tuple):
        raise InputError("command is a text or a list of texts, and args is a list")
    env = {variable: _setting(value) for variable, value in _mapping(options, "env").items() if value is not None}
    cwd = options.get("cwd")
    return Server(name, command=tuple(map(str, [*words, *args])), cwd=None if cwd is None else str(cwd), env=env)


def _url(text: str, proof: Proof) -> URL:
    try:
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError
        return url.extend_query(proof.query) if proof.query else url
    except ValueError:
        raise InputError("endpoint of the mcp task is no http:// or https:// address with a host") from None


def _mapping(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = options.get(name) or {}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is a mapping of names to texts")
    return value


def _texts(options: Mapping[str, Any], name: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in _mapping(options, name).items() if value is not None}


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
