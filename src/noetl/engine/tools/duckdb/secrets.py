"""Makes DuckDB secrets of a task's credentials, for as long as the task runs. No message quotes what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

from noetl.engine.tools.duckdb.values import BadTask, quoted
from noetl.engine.tools.port import Credentials

_TYPES = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "s3": "s3",
    "aws": "s3",
    "gcs": "gcs",
    "gcs_hmac": "gcs",
    "hmac": "gcs",
    "r2": "r2",
}
_EXTENSIONS = {"postgres": "postgres", "s3": "httpfs", "gcs": "httpfs", "r2": "httpfs"}
_FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "postgres": {
        "HOST": ("db_host", "host"),
        "PORT": ("db_port", "port"),
        "DATABASE": ("db_name", "database", "dbname"),
        "USER": ("db_user", "user", "username"),
        "PASSWORD": ("db_password", "password"),
    },
    "s3": {
        "KEY_ID": ("key_id", "access_key_id", "aws_access_key_id", "access_key"),
        "SECRET": ("secret", "secret_access_key", "aws_secret_access_key", "secret_key"),
        "SESSION_TOKEN": ("session_token", "aws_session_token"),
        "REGION": ("region", "region_name"),
        "ENDPOINT": ("endpoint",),
        "URL_STYLE": ("url_style",),
        "USE_SSL": ("use_ssl",),
        "ACCOUNT_ID": ("account_id",),
        "SCOPE": ("scope",),
    },
}


@dataclass(frozen=True)
class Secret:
    """One credential under the name SQL calls it by."""

    name: str
    type: str
    data: Mapping[str, Any] = field(repr=False)

    def create(self) -> str:
        """Return the statement that makes the secret."""
        fields = _FIELDS["postgres" if self.type == "postgres" else "s3"]
        parts = [f"TYPE {self.type}"]
        for name, spellings in fields.items():
            value = next((self.data[one] for one in spellings if self.data.get(one) not in (None, "")), None)
            if value is not None:
                parts.append(f"{name} {_literal(value)}")
        return f"CREATE OR REPLACE TEMPORARY SECRET {quoted(self.name)} ({', '.join(parts)})"


async def secrets_of(credentials: Credentials, auth: Any) -> list[Secret]:
    """Return the secrets of an `auth`: one alias, one literal with a type, or a mapping of names to either."""
    if not auth:
        return []
    if isinstance(auth, str):
        return [await _secret(credentials, auth, auth)]
    if not isinstance(auth, Mapping):
        raise BadTask("`auth` of a duckdb task is the name of a credential or a mapping of names to credentials")
    if "type" in auth:
        return [await _secret(credentials, str(auth.get("secret_name", "noetl")), auth)]
    return [await _secret(credentials, str(name), one) for name, one in auth.items()]


async def _secret(credentials: Credentials, name: str, given: Any) -> Secret:
    literal = given if isinstance(given, Mapping) else {"credential": given}
    alias = literal.get("credential", literal.get("key"))
    found = await credentials.credential(alias) if isinstance(alias, str) else None
    kind = str(literal.get("type") or (found.type if found else "")).lower()
    if kind not in _TYPES:
        raise BadTask(f"the credential {name} of type {kind or 'nothing'} cannot be made a DuckDB secret")
    return Secret(str(literal.get("secret_name", name)), _TYPES[kind], {**(found.data if found else {}), **literal})


def install(connection: duckdb.DuckDBPyConnection, secrets: list[Secret], *, attach: bool) -> None:
    """Make the secrets, and attach PostgreSQL databases under their names if asked."""
    for secret in secrets:
        load_extension(connection, _EXTENSIONS[secret.type])
        try:
            connection.execute(secret.create())
        except duckdb.Error as error:
            raise BadTask(f"DuckDB refuses the secret {secret.name} ({type(error).__name__})") from None
        if attach and secret.type == "postgres":
            connection.execute(f"ATTACH '' AS {quoted(secret.name)} (TYPE postgres, SECRET {quoted(secret.name)})")


def drop(connection: duckdb.DuckDBPyConnection, secrets: list[Secret]) -> None:
    """Forget the secrets, which would otherwise live as long as the database is open."""
    if not secrets:
        return
    with suppress(duckdb.Error):
        # A transaction that failed would refuse everything else.
        connection.execute("ROLLBACK")
    for secret in secrets:
        with suppress(duckdb.Error):
            connection.execute(f"DROP TEMPORARY SECRET IF EXISTS {quoted(secret.name)}")


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension, installing it first where it can be fetched."""
    for statement in (f"LOAD {name}", f"INSTALL {name}", f"LOAD {name}"):
        try:
            connection.execute(statement)
        except duckdb.Error:
            if statement.startswith("INSTALL"):
                break
        else:
            if statement.startswith("LOAD"):
                return
    raise BadTask(f"the DuckDB extension {name} is not installed on this worker and cannot be fetched from here")


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + str(value).replace("'", "''") + "'"
