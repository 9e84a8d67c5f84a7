"""Finds the account a task means: a credential goes in, what the connector logs in with comes out. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives import serialization

from noetl.execute.tools.port import Credentials
from noetl.execute.tools.snowflake.problems import BadTarget

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
