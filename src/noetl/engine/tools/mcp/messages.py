"""Messages of JSON-RPC 2.0: a task's options go in as method and params, the server's answer comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import orjson

from noetl.engine.tools.json_text import read_json
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.errors import InputError

LIMIT: Final = 64 << 20
"""Bytes of one answer."""

METHOD_NOT_FOUND: Final = -32601


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class NotJsonRpc(Exception):
    """What the server sent is no JSON-RPC."""


class Channel(Protocol):
    """A way to one server, open for one task."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and return its result; `Refused` when the server answers with an error."""
        ...

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        ...

    def agreed(self, protocol_version: str) -> None:
        """Take note of the version of the protocol that both sides speak."""
        ...

    async def aclose(self) -> None:
        """End the way; what was asked and not answered is cancelled."""
        ...


def request(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request, ready to be sent."""
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": plain(params)})


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    """Return a notification, ready to be sent."""
    return orjson.dumps({"jsonrpc": "2.0", "method": method, **({"params": plain(params)} if params else {})})


def parsed(text: bytes) -> dict[str, Any]:
    """Return the message a text is."""
    try:
        message = read_json(text)
    except ValueError:
        raise NotJsonRpc("the server sent something that is no JSON") from None
    if not isinstance(message, dict):
        raise NotJsonRpc("the server sent JSON that is no message of JSON-RPC")
    return message


def answers(message: Mapping[str, Any], number: int) -> bool:
    """Tell whether a message is the answer to a request; an error without an id answers whatever was asked."""
    if "method" in message or not {"result", "error"} & message.keys():
        return False
    return message.get("id") == number or (message.get("id") is None and "error" in message)


def result_of(message: Mapping[str, Any]) -> Any:
    """Return the result in an answer, or raise the error in it."""
    error = message.get("error")
    if error is None:
        return message.get("result")
    if not isinstance(error, Mapping):
        raise Refused(0, str(error))
    code = error.get("code")
    raise Refused(code if isinstance(code, int) else 0, str(error.get("message") or ""), error.get("data"))


def reply_to(message: Mapping[str, Any]) -> bytes | None:
    """Return what is answered to a request of the server's own: it may ask whether anybody is there, and no more."""
    if "method" not in message or message.get("id") is None:
        return None
    if message["method"] == "ping":
        return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": "a task answers no requests"}
    return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})


PROTOCOL: Final = "2025-06-18"
CALL: Final = "tools/call"
_PING: Final = frozenset({"health", "ping"})
_MOST_PAGES: Final = 1_000
_KEY: Final = "noetl.io/key"


class Asked(NamedTuple):
    """One request."""

    method: str
    params: dict[str, Any]
    tool: str | None


def asked_by(call: Call) -> Asked:
    """Return what a call asks."""
    options = call.options
    method = str(options.get("method") or CALL).strip()
    params = dict(_mapping(options.get("params"), "params"))
    if method != CALL:
        return Asked("ping" if method in _PING else method, params, None)
    given = options.get("arguments")
    params.setdefault("arguments", _mapping(dict(call.input) if given is None else given, "arguments"))
    tool = options.get("tool") or params.get("name")
    if not tool:
        raise InputError("tools/call needs tool, the name of the server's tool")
    params["name"] = str(tool)
    # The same for every try, so a server that cares can tell a second try from a second call.
    params["_meta"] = {**_mapping(params.get("_meta"), "params._meta"), _KEY: call.key}
    return Asked(CALL, params, str(tool))


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return a mapping, which may be given as its JSON text."""
    if isinstance(value, str) and value.strip():
        try:
            value = orjson.loads(value)
        except ValueError:
            raise InputError(f"{name} is a mapping, or the JSON text of one") from None
    if value in (None, ""):
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is a mapping, or the JSON text of one")
    return value


async def answered(channel: Channel, asked: Asked, options: Mapping[str, Any]) -> Any:
    """Greet the server and ask; a list that comes in pages is read to its end."""
    info = await _greeted(channel, options)
    if asked.method == "initialize":
        return info
    result = await channel.ask(asked.method, asked.params)
    if asked.method.endswith("/list") and isinstance(result, dict):
        await _with_further_pages(channel, asked, result)
    return result


async def _greeted(channel: Channel, options: Mapping[str, Any]) -> Any:
    hello = {
        "protocolVersion": str(options.get("protocol_version") or PROTOCOL),
        "capabilities": {},
        "clientInfo": {
            "name": str(options.get("client_name") or "noetl"),
            "version": str(options.get("client_version") or "1"),
        },
    }
    try:
        info = await channel.ask("initialize", hello)
    except Refused as refused:
        if refused.code != METHOD_NOT_FOUND:
            raise
        return {}  # a server of plain JSON-RPC has no greeting
    if isinstance(info, Mapping) and isinstance(info.get("protocolVersion"), str):
        channel.agreed(info["protocolVersion"])
    await channel.tell("notifications/initialized", {})
    return info


async def _with_further_pages(channel: Channel, asked: Asked, result: dict[str, Any]) -> None:
    listed = next((name for name, value in result.items() if isinstance(value, list)), None)
    for _ in range(_MOST_PAGES):
        cursor = result.pop("nextCursor", None)
        if cursor is None or listed is None:
            return
        page = await channel.ask(asked.method, {**asked.params, "cursor": cursor})
        if not isinstance(page, dict) or not isinstance(page.get(listed), list):
            raise NotJsonRpc(f"a further page of {asked.method} has no {listed}")
        result[listed] += page[listed]
        if "nextCursor" in page:
            result["nextCursor"] = page["nextCursor"]
    raise NotJsonRpc(f"{asked.method} has more than {_MOST_PAGES} pages")


def text_of(result: Any) -> str:
    """Return the texts in a result, one after the other."""
    if not isinstance(result, Mapping):
        return ""
    parts = result.get("content") or result.get("contents") or []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))
