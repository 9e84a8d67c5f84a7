"""Plain calls of a server's API: a method, a path and a body go in, the answer's JSON comes out, or an error of ours."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from noetl.engine.dispatch.remote import unanswered
from noetl.errors import Conflict, Denied, InputError, NoetlError, NotFound, OutsideUnavailable, Unavailable
from noetl.services.credentials.secret import Secret

_SECONDS: Final = 30.0
_REFUSALS: Final[dict[int, type[NoetlError]]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


def checked_url(url: str) -> str:
    """Return a server's address, or raise `InputError` for what cannot be one, however long one waits."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None:
        # It is not repeated: somebody may have written a password into it.
        raise InputError(
            "the server's address is not a URL of the form http://HOST:PORT or https://HOST",
            hint="for instance `noetl worker --server http://127.0.0.1:8082`",
        )
    return url.rstrip("/")


class ServerApi:
    """A server's API, called with a token or without one."""

    def __init__(self, url: str, token: Secret | None) -> None:
        self._url = checked_url(url)
        self.token = token
        headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}"}
        self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=_SECONDS))

    async def __aenter__(self) -> ServerApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer."""
        try:
            async with self._session.request(method, self._url + path, json=body) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            hint = "is the address right, and does `noetl server` run there?"
            raise Unavailable(unanswered(self._url, problem), hint=hint) from None
        answer = _json(data)
        if status < 400 and answer is not None:
            return answer
        told = answer if isinstance(answer, dict) else {}
        words = str(told.get("detail") or f"{method} {path} was answered with status {status}")
        if status >= 500 or status in (408, 429):
            # The server may have asked one of the user's, which then is what does not answer.
            kind = OutsideUnavailable if told.get("code") == OutsideUnavailable.code else Unavailable
            raise kind(words, hint=told.get("hint"))
        if "code" not in told:
            raise InputError(f"what answers at {self._url} is no NoETL server: {words}", hint="is the address right?")
        raise _REFUSALS.get(status, InputError)(words, hint=told.get("hint"))


def _json(data: bytes) -> Any:
    """Return the JSON of a body, nothing for an empty one, and None for what is no JSON."""
    try:
        return orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        return None
