"""A signed head: how large a shard's tree was and which root it had, under an Ed25519 signature. Whoever keeps one elsewhere
can tell later whether anything up to its size was changed."""

from __future__ import annotations

import base64
import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from noetl.errors import ConfigError, InputError
from noetl.model.canonical import canonical_json
from noetl.model.merkle import leaf_hash

KEY_FILE: Final = "notary.key"
PUBLIC_FILE: Final = "notary.pub"
FORMER_FILES: Final = "notary-*.pub"
"""The public keys of notaries that signed before this one."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed: the canonical JSON of all fields but the signature."""

    ledger: str
    shard: int
    first_position: int
    """The position of the first leaf."""
    size: int
    """How many leaves the tree has."""
    root: str
    """The root of the tree, in hex."""
    link: str
    """The link that ends there, in hex: it covers times and versions, which leaves do not."""
    signed_at: str
    key: str
    """Which key signed it: the first 16 hex digits of the SHA-256 of the raw public key."""
    signature: str = ""

    @property
    def last_position(self) -> int:
        """The last position it covers."""
        return self.first_position + self.size - 1

    def line(self) -> str:
        """Return it as one line of JSON."""
        return msgspec.json.encode(self).decode()

    def signed_bytes(self) -> bytes:
        """Return what the signature is over."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["signature"]
        return canonical_json(fields)


def tree_leaf(position: int, leaf: bytes) -> bytes:
    """Return the hash under which an event stands in its shard's tree: over its position and its leaf."""
    return leaf_hash(position.to_bytes(8) + leaf)


def read_heads(text: str) -> list[Head]:
    """Return the heads of a file, one to a line; a last line that was cut off while it was written is none."""
    lines = text.split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (number == len(lines) and not line.endswith("}")):
            continue
        try:
            found.append(msgspec.json.decode(line, type=Head))
        except msgspec.DecodeError as problem:
            raise InputError(f"line {number} is no signed head: {problem}") from None
    return found


class Signer:
    """Signs heads with a key in the key directory, made when there is none."""

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make_key(directory / KEY_FILE)
            key = load_pem_private_key((directory / KEY_FILE).read_bytes(), None)
            assert isinstance(key, Ed25519PrivateKey)
            self._key = key
            self._directory = directory
            self.public = key.public_key()
            _write_whole(directory / PUBLIC_FILE, public_pem(self.public), 0o644)
        except (OSError, ValueError, AssertionError) as problem:
            raise ConfigError(
                f"the key that signs heads of the ledger cannot be kept in {directory / KEY_FILE}: {problem}"
            ) from None

    def trusted(self) -> list[Ed25519PublicKey]:
        """Return the keys whose heads are believed: this one, and those that an administrator keeps of former ones."""
        former = sorted(path for path in self._directory.glob(FORMER_FILES) if path.name != PUBLIC_FILE)
        return [self.public, *(read_public_key(path.read_bytes()) for path in former)]

    def sign(self, head: Head) -> Head:
        """Return the head with this key's name and signature."""
        named = msgspec.structs.replace(head, key=key_name(self.public))
        signature = self._key.sign(named.signed_bytes())
        return msgspec.structs.replace(named, signature=base64.b64encode(signature).decode())


def is_signed_by(head: Head, public: Ed25519PublicKey) -> bool:
    """Tell whether a key signed a head."""
    try:
        public.verify(base64.b64decode(head.signature, validate=True), head.signed_bytes())
    except (InvalidSignature, ValueError):
        return False
    return True


def key_name(public: Ed25519PublicKey) -> str:
    """Return the name of a key."""
    return sha256(public.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def public_pem(public: Ed25519PublicKey) -> bytes:
    """Return a public key as the text that other tools read."""
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public_key(text: bytes) -> Ed25519PublicKey:
    """Return the public key of a PEM text."""
    try:
        key = load_pem_public_key(text)
    except ValueError as problem:
        raise InputError(f"this is no public key in PEM: {problem}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("heads are signed with Ed25519, and this is a key of another kind")
    return key


def _make_key(path: Path) -> None:
    if path.exists():
        return
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_whole(path, pem, 0o600)


def _write_whole(path: Path, data: bytes, mode: int) -> None:
    """Make a file whole or not at all; of two processes that start together, one makes it."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
