"""What a source of messages promises: what to take goes in, messages come out, still unacknowledged, with how to settle them."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from noetl.engine.tools.port import Call, Settle
from noetl.errors import InputError, Unsupported

MOST: Final = 10_000
DEFAULT_BATCH: Final = 100
DEFAULT_SECONDS: Final = 5.0
_MOST_SECONDS: Final = 3_600.0


@dataclass(frozen=True)
class Wanted:
    """How many messages a task takes at most, and how long it waits for the first."""

    batch: int
    seconds: float


@dataclass(frozen=True)
class Taken:
    """Messages that were taken and not acknowledged; `settle` acknowledges them, or gives them back."""

    messages: list[dict[str, Any]]
    settle: Settle = field(repr=False)


def wanted_by(call: Call) -> Wanted:
    """Return what a call wants."""
    options = call.options
    batch = _number(options.get("batch"), "batch", DEFAULT_BATCH, MOST)
    if options.get("timeout_ms") is not None:
        return Wanted(int(batch), _number(options["timeout_ms"], "timeout_ms", 0.0, _MOST_SECONDS * 1000) / 1000)
    return Wanted(int(batch), _number(options.get("timeout"), "timeout", DEFAULT_SECONDS, _MOST_SECONDS))


def _number(value: Any, name: str, default: float, most: float) -> float:
    try:
        number = default if value is None else float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= most:
        raise InputError(f"{name} is a number above 0 and at most {most:g}")
    return number


def needed(call: Call, *names: str) -> str:
    """Return the first of some options that is given."""
    for name in names:
        if call.options.get(name) not in (None, ""):
            return str(call.options[name])
    raise InputError(f"a subscription of {call.options.get('source')} needs {names[0]}")


async def login_of(call: Call, kind: str) -> Mapping[str, Any]:
    """Return the data of the credential that `auth` names, or `auth` itself where it is a mapping."""
    auth = call.auth
    if isinstance(auth, Mapping) and isinstance(auth.get("credential"), str):
        auth = auth["credential"]
    if not isinstance(auth, str):
        return auth if isinstance(auth, Mapping) else {}
    credential = await call.credentials.credential(auth)
    if credential.type != kind:
        raise InputError(f"auth: {auth!r} is a credential of type {credential.type}, and {kind} is needed")
    return credential.data


def data_of(data: bytes | None) -> Any:
    """Return what a message says: JSON objects and arrays as such, other texts as they are, other bytes in base64."""
    if not data:
        return ""
    if data[:1] in b"{[":
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    return text_of(data)


def text_of(data: bytes) -> str:
    """Return bytes as text, in base64 if they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def client_of(module: str, extra: str) -> Any:
    """Import the client of a broker, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        raise Unsupported(
            f"subscriptions of this source need the package {module!r}, which is not installed",
            hint=f"pip install 'noetl[{extra}]'",
        ) from None
