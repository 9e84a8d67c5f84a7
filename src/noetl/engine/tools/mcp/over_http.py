"""Streamable HTTP: each message is a POST, answered as JSON or as a stream of events; a session is ended with the task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
from yarl import URL

from noetl.engine.tools.http.connection import TooLarge
from noetl.engine.tools.http.session import TIMEOUT, headers_of, plain_errors, whole_body
from noetl.engine.tools.mcp.messages import (
    LIMIT,
    NotJsonRpc,
    Refused,
    answers,
    notification,
    parsed,
    reply_to,
    request,
    result_of,
)

_SESSION: Final = "Mcp-Session-Id"
_VERSION: Final = "MCP-Protocol-Version"
_FAREWELL_SECONDS: Final = 2.0


class BadStatus(Exception):
    """The server answered with a status that is no success."""

    def __init__(self, status: int, reason: str, headers: dict[str, str]) -> None:
        super().__init__(f"{status} {reason}")
        self.status, self.reason, self.headers = status, reason, headers


class HttpChannel:
    """A way to a server behind an address."""

    def __init__(self, session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], *, verify: bool) -> None:
        self._session, self._url, self._verify = session, url, verify
        self._headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **headers,
        }
        self._number = 0
        self._unanswered: int | None = None

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and read until its answer; the server may send notifications before it."""
        self._number += 1
        number = self._unanswered = self._number
        async with self._sent("POST", request(number, method, params)) as response:
            if response.status >= 300:
                self._unanswered = None
                raise await _refusal(response, number)
            self._headers |= {_SESSION: response.headers[_SESSION]} if _SESSION in response.headers else {}
            message = await self._answer(response, number)
        self._unanswered = None
        return result_of(message)

    async def _answer(self, response: aiohttp.ClientResponse, number: int) -> dict[str, Any]:
        if response.content_type != "text/event-stream":
            message = parsed(await whole_body(response, LIMIT))
            if not answers(message, number):
                raise NotJsonRpc("the server answered with something that is no answer")
            return message
        async for text in _events(response.content):
            message = parsed(text)
            if answers(message, number):
                return message
            reply = reply_to(message)
            if reply is not None:
                await self._send(reply)
        raise NotJsonRpc("the server ended its stream of events without an answer")

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; whether the server makes something of it is its own affair."""
        await self._send(notification(method, params))

    def agreed(self, protocol_version: str) -> None:
        """Name the version in every further request."""
        self._headers[_VERSION] = protocol_version

    async def aclose(self) -> None:
        """End the session, if the server keeps one, and what still runs in it."""
        if self._unanswered is not None or _SESSION in self._headers:
            with suppress(OSError, TimeoutError, ValueError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await asyncio.shield(self._farewell())

    async def _farewell(self) -> None:
        if self._unanswered is not None:
            told = {"requestId": self._unanswered, "reason": "the task was ended"}
            await self._send(notification("notifications/cancelled", told))
        if _SESSION in self._headers:
            async with self._sent("DELETE", None):
                pass

    async def _send(self, body: bytes) -> None:
        async with self._sent("POST", body):
            pass

    @asynccontextmanager
    async def _sent(self, method: str, body: bytes | None) -> AsyncIterator[aiohttp.ClientResponse]:
        with plain_errors():
            async with self._session.request(
                method,
                self._url,
                headers=self._headers,
                data=body,
                allow_redirects=False,
                timeout=TIMEOUT,
                ssl=self._verify,
            ) as response:
                yield response


async def _refusal(response: aiohttp.ClientResponse, number: int) -> Exception:
    """Return why a server refused: in words of JSON-RPC where it has some, and the status says no more than that."""
    if response.status in (400, 404, 405, 406, 409, 415, 422):
        with suppress(NotJsonRpc, TooLarge):
            message = parsed(await whole_body(response, LIMIT))
            if answers(message, number):
                try:
                    result_of(message)
                except Refused as refused:
                    return refused
    return BadStatus(response.status, response.reason or "", headers_of(response))


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the data of each event of a stream."""
    data: list[bytes] = []
    rest, size = b"", 0
    async for piece in content.iter_any():
        size += len(piece)
        if size > LIMIT:
            raise TooLarge
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
