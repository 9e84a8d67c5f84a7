"""What credentials and keychain have in common as rows: JSON under the newest key, and the lock between writers and removal of keys."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.credentials.keyring import KeyRing
from noetl.credentials.sealing import Place, seal, unseal
from noetl.errors import InputError
from noetl.ledger.database import Connection
from noetl.model.canonical import exact_json

_KEYS_LOCK = 7_203_551_904_412


async def hold_keys(connection: Connection) -> None:
    """Keep keys from being removed until the transaction ends; called before the key for a row is chosen."""
    await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", _KEYS_LOCK)


async def hold_keys_alone(connection: Connection) -> None:
    """Keep rows from being sealed until the transaction ends, so that the keys in use can be counted."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _KEYS_LOCK)


def sealed_json(keys: KeyRing, value: Any, place: Place) -> tuple[bytes, str]:
    """Return a JSON value sealed under the newest key, and the key's id."""
    try:
        plain = exact_json(value)
    except (TypeError, ValueError):
        # Said without the cause, which may quote a value.
        raise InputError(f"the {place[0]} {place[3]!r} holds something that JSON cannot carry") from None
    key = keys.newest()
    return seal(key, plain, place), key.key_id


def opened_json(keys: KeyRing, sealed: bytes, key_id: str, place: Place) -> Any:
    """Return the JSON value of a sealed row."""
    return msgspec.json.decode(unseal(keys.key(key_id), sealed, place))
