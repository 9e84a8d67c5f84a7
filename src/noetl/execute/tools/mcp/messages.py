"""Messages of JSON-RPC 2.0: what is asked goes in as a mapping, what was answered comes out, or why it was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson

from noetl.execute.plain import plain
from noetl.execute.tools.json_text import read_json

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
