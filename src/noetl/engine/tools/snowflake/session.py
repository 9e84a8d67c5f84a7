"""Sessions of Snowflake: a credential goes in; a connection for one task comes out, used and cancelled in a thread."""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives import serialization

from noetl.engine.tools.port import Call, Credentials
from noetl.engine.tools.snowflake.problems import BadTarget
from noetl.errors import Unsupported

_LOGIN_SECONDS: Final = 60
_CANCEL_SECONDS: Final = 15.0

Made = TypeVar("Made")


class Session:
    """One connection. Work runs on it one at a time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, work: Callable[[], Made]) -> Made:
        """Run work in a thread; when cancelled, cancel the session's statements and wait until the work has stopped."""
        done = asyncio.wrap_future(_in_thread(work))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            stopping = _in_thread(self._cancel)
            # A server that does not answer keeps the thread, not the task.
            both: list[asyncio.Future[Any]] = [done, asyncio.wrap_future(stopping)]
            await asyncio.wait(both, timeout=_CANCEL_SECONDS)
            if done.done() and not done.cancelled():
                done.exception()
            raise

    def _cancel(self) -> None:
        with suppress(Exception):
            self.connection.cursor().execute("SELECT SYSTEM$CANCEL_ALL_QUERIES(?)", [self.connection.session_id])

    async def aclose(self) -> None:
        """Log out."""
        closing = asyncio.wrap_future(_in_thread(self._close))
        await asyncio.wait([closing], timeout=_CANCEL_SECONDS)

    def _close(self) -> None:
        with suppress(Exception):
            self.connection.close(retry=False)


@asynccontextmanager
async def session_of(call: Call, target: Target, seconds: float | None) -> AsyncIterator[Session]:
    """Lend a session; its statements end by themselves when the time is over, whoever is left to wait for them."""
    limit = {} if seconds is None else {"STATEMENT_TIMEOUT_IN_SECONDS": max(1, math.ceil(seconds))}
    settings = {
        **target.settings,
        "application": "NoETL",
        "paramstyle": "qmark",
        "login_timeout": _LOGIN_SECONDS,
        "platform_detection_timeout_seconds": 0.0,
        "session_parameters": {
            "ABORT_DETACHED_QUERY": True,
            "CLIENT_TELEMETRY_ENABLED": False,
            "QUERY_TAG": f"noetl execution {call.execution_id}",
            **limit,
        },
    }
    opening = _in_thread(lambda: connector().connect(**settings))
    try:
        connection = await asyncio.shield(asyncio.wrap_future(opening))
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)
        raise
    session = Session(connection)
    try:
        yield session
    finally:
        await asyncio.shield(session.aclose())


def _in_thread(work: Callable[[], Made]) -> Future[Made]:
    """Start work in a thread that does not keep the process from ending: the connector may try for ever to reach a server."""
    told: Future[Made] = Future()

    def run() -> None:
        try:
            told.set_result(work())
        except BaseException as error:
            told.set_exception(error)

    Thread(target=run, name="noetl-snowflake", daemon=True).start()
    return told


def connector() -> Any:
    """Return the connector's module."""
    try:
        return importlib.import_module("snowflake.connector")
    except ImportError:
        raise Unsupported(
            "tasks in Snowflake need its connector, which is not installed: pip install 'noetl[snowflake]'"
        ) from None


def _close_late(opened: Future[Any]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        with suppress(Exception):
            opened.result().close(retry=False)


_FIELDS: Final = {
    "account": ("sf_account", "account"),
    "user": ("sf_user", "user", "username"),
    "password": ("sf_password", "password"),
    "warehouse": ("sf_warehouse", "warehouse"),
    "database": ("sf_database", "database", "db_name"),
    "schema": ("sf_schema", "schema"),
    "role": ("sf_role", "role"),
    "authenticator": ("sf_authenticator", "authenticator"),
    "token": ("sf_token", "token", "access_token"),
    "host": ("sf_host", "host"),
    "port": ("sf_port", "port"),
    "protocol": ("sf_protocol", "protocol"),
}
_KEY: Final = ("sf_private_key", "private_key")
_PASSPHRASE: Final = ("sf_private_key_passphrase", "private_key_passphrase", "sf_passphrase", "passphrase")
_BY_HAND: Final = ("externalbrowser", "username_password_mfa", "oauth_authorization_code")


@dataclass(frozen=True)
class Target:
    """One account as one user."""

    place: str
    """How messages call it."""
    settings: Mapping[str, Any] = field(repr=False)


async def find_target(credentials: Credentials, auth: Any) -> Target:
    """Return the account that an alias, a mapping with one alias, or a literal mapping names."""
    data = await _data(credentials, auth)
    settings: dict[str, Any] = {}
    for name, spellings in _FIELDS.items():
        value = _first(data, spellings)
        if value is not None:
            settings[name] = str(value)
    missing = [name for name in ("account", "user") if name not in settings]
    if missing:
        raise BadTarget(f"the snowflake credential lacks {' and '.join(f'sf_{name}' for name in missing)}")
    if str(settings.get("authenticator", "")).lower() in _BY_HAND:
        raise BadTarget("the snowflake credential's authenticator asks a person; use a key pair, a token or a password")
    key = _first(data, _KEY)
    if key is not None:
        settings["private_key"] = _key(str(key), _first(data, _PASSPHRASE))
        settings.setdefault("authenticator", "SNOWFLAKE_JWT")
    elif "token" in settings and "password" not in settings:
        settings.setdefault("authenticator", "OAUTH")
    elif "password" not in settings:
        raise BadTarget("the snowflake credential needs sf_password, sf_private_key or sf_token")
    if "port" in settings:
        settings["port"] = _number(settings["port"])
    return Target(f"Snowflake {settings['account']}", settings)


async def _data(credentials: Credentials, auth: Any) -> Mapping[str, Any]:
    while isinstance(auth, Mapping) and _first(auth, _FIELDS["account"]) is None:
        named = auth.get("credential", auth.get("key"))
        if named is None and len(auth) == 1:
            named = next(iter(auth.values()))
        if not isinstance(named, str | Mapping):
            raise BadTarget("the snowflake task's `auth` has to name one credential")
        auth = named
    if isinstance(auth, Mapping):
        return auth
    if not isinstance(auth, str) or not auth:
        raise BadTarget("a snowflake task needs `auth`: the name of a credential of type snowflake")
    return (await credentials.credential(auth)).data


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((data[name] for name in names if data.get(name) not in (None, "")), None)


def _key(text: str, passphrase: Any) -> bytes:
    try:
        key = serialization.load_pem_private_key(
            text.replace("\\n", "\n").encode(), None if passphrase is None else str(passphrase).encode()
        )
    except (ValueError, TypeError):
        # The library's words may quote a part of the key.
        raise BadTarget(
            "the snowflake credential's private key cannot be read; it is PEM, with its passphrase"
        ) from None
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadTarget("the port of the snowflake credential is no number") from None
