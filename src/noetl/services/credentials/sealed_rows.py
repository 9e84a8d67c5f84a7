"""Secrets at rest: plain bytes and the place they belong to go in, a sealed row comes out, and the way back.

Each row has a random key of its own, wrapped by the master key (AES-256-GCM both). The place is proven with the content,
so a row that was changed, or copied to another tenant or name, does not open.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noetl.errors import Corrupt, InputError
from noetl.kernel.ledger.postgres.database import Connection
from noetl.model.canonical import exact_json
from noetl.model.stream import Scope
from noetl.services.credentials.keyring import KEY_BYTES, Key, KeyRing

_VERSION = b"\x01"
_NONCE = 12
_TAG = 16
_WRAPPED = _NONCE + KEY_BYTES + _TAG
_PURPOSE = b"noetl sealed row, version 1"


class Place(tuple[str, ...]):
    """Where a sealed row belongs: what it is, whose it is, and its name."""

    __slots__ = ()

    @classmethod
    def of(cls, kind: str, scope: Scope, *names: str) -> Place:
        """Return the place of a row of some kind in an organization."""
        return cls((kind, scope.tenant_id, scope.organization_id, *names))

    def proof(self, key: Key) -> bytes:
        """Return the bytes that are proven with the content; lengths keep `a, bc` and `ab, c` apart."""
        parts = [_PURPOSE, key.key_id.encode(), *(part.encode() for part in self)]
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def seal(key: Key, plain: bytes, place: Place) -> bytes:
    """Encrypt bytes for their place."""
    own = secrets.token_bytes(KEY_BYTES)
    proof = place.proof(key)
    return _VERSION + _encrypted(key.secret, own, proof) + _encrypted(own, plain, proof)


def unseal(key: Key, sealed: bytes, place: Place) -> bytes:
    """Decrypt bytes of this very place, or raise `Corrupt`."""
    proof = place.proof(key)
    start = len(_VERSION)
    try:
        if sealed[:start] != _VERSION or len(sealed) < start + _WRAPPED + _NONCE + _TAG:
            raise InvalidTag
        own = _decrypted(key.secret, sealed[start : start + _WRAPPED], proof)
        return _decrypted(own, sealed[start + _WRAPPED :], proof)
    except InvalidTag:
        raise Corrupt(
            f"the {place[0]} {place[3]!r} does not open: its row was changed, or copied from another place",
            hint="put it again",
        ) from None


def _encrypted(key: bytes, plain: bytes, proof: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, proof)


def _decrypted(key: bytes, sealed: bytes, proof: bytes) -> bytes:
    return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], proof)


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
