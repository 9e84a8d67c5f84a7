"""Connections to NATS: servers and a credential go in, a connected client comes out, one for all tasks of a worker."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson
from nats import errors
from nats.aio.client import Client, RawCredentials

from noetl.engine.tools.port import Call
from noetl.errors import InputError

_CONNECT_SECONDS = 5
_LOG_IN = ("user", "password", "token", "nkeys_seed_str", "user_credentials")
_log = logging.getLogger(__name__)


class Connection:
    """A connection that is made at first use, and anew when it was lost."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._making = asyncio.Lock()

    async def client(self) -> Client:
        """Return the connected client."""
        async with self._making:
            if self._client is None or not self._client.is_connected:
                await self.aclose()
                self._client = await self._connected()
            return self._client

    async def _connected(self) -> Client:
        client = Client()
        try:
            # The client would try for ever behind the task's back; a task that fails is tried again by its policy.
            await client.connect(
                **self._settings,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=_CONNECT_SECONDS,
                error_cb=_noted,
            )
        except BaseException as problem:
            with suppress(Exception):
                await client.close()
            if isinstance(problem, errors.Error) and "authori" in str(problem).lower():
                raise errors.AuthorizationError from None
            raise
        return client

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None and not self._client.is_closed:
            with suppress(errors.Error, OSError):
                await self._client.close()


async def _noted(error: Exception) -> None:
    # Messages of the client may quote addresses with passwords in them.
    _log.debug("a NATS connection met %s", type(error).__name__)


async def client_of(call: Call) -> Client:
    """Return the connected client of the servers and the credential that a call names."""
    settings = await _settings(call)
    digest = hashlib.sha256(orjson.dumps(settings, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()

    async def make() -> Connection:
        return Connection(settings)

    connection: Connection = await call.resources.get(("nats", call.owner, digest), make)
    return await connection.client()


async def _settings(call: Call) -> dict[str, Any]:
    auth = call.auth
    if isinstance(auth, Mapping) and isinstance(auth.get("credential"), str):
        auth = auth["credential"]
    if isinstance(auth, str):
        credential = await call.credentials.credential(auth)
        if credential.type != "nats":
            raise InputError(f"auth: {auth!r} is a credential of type {credential.type}, and nats is needed")
        auth = credential.data
    data: Mapping[str, Any] = auth if isinstance(auth, Mapping) else {}
    servers = next(
        (where[name] for where in (data, call.options) for name in ("servers", "nats_url", "url") if where.get(name)),
        "",
    )
    servers = [each.strip() for each in servers.split(",")] if isinstance(servers, str) else list(servers)
    if not any(servers):
        raise InputError("the nats tool needs a server: auth with a credential of type nats, or url")
    found = {
        "user": data.get("user") or data.get("nats_user") or data.get("username"),
        "password": data.get("password") or data.get("nats_password"),
        "token": data.get("token"),
        "nkeys_seed_str": data.get("nkeys_seed") or data.get("nkey_seed") or data.get("nkey"),
        "user_credentials": data.get("creds") or data.get("credentials"),
    }
    log_in: dict[str, Any] = {name: str(found[name]) for name in _LOG_IN if found[name]}
    if "user_credentials" in log_in:
        log_in["user_credentials"] = RawCredentials(log_in["user_credentials"])
    return {"servers": [str(each) for each in servers], **log_in}
