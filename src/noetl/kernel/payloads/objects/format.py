"""How a stored object is laid out (head, body, tail) and how its body is encrypted: AES-256-GCM in pieces of 1 MiB.

Each piece is authenticated, and so are order, number and end. Equal bodies under one key give equal ciphertext, so
that content addressing still finds duplicates. Objects that are stored as they are have neither head nor tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noetl.errors import Corrupt
from noetl.model.payload_ref import Encoding

_SKIPPABLE: Final = (0x184D2A5E).to_bytes(4, "little")
_MAGIC: Final = b"NOETLOBJ"
_VERSION: Final = 1
_CODES: Final[dict[Encoding, int]] = {"zstd": 1, "aes256gcm": 2, "zstd+aes256gcm": 3}
_ENCODINGS: Final = {code: encoding for encoding, code in _CODES.items()}

TAIL_BYTES: Final = 40
HEAD_START: Final = 24
"""Bytes at the start that tell whether there is a head, and how long it is."""


class Head:
    """The head of an encoded object."""

    def __init__(self, encoding: Encoding, body_digest: bytes = b"") -> None:
        self.encoding = encoding
        self.body_digest = body_digest
        content = _MAGIC + bytes((_VERSION, _CODES[encoding])) + bytes(6) + body_digest
        self.raw = _SKIPPABLE + len(content).to_bytes(4, "little") + content


def is_compressed(encoding: Encoding) -> bool:
    """Tell whether the plain bytes are compressed."""
    return encoding.startswith("zstd")


def is_encrypted(encoding: Encoding) -> bool:
    """Tell whether the stored bytes need a key."""
    return encoding.endswith("aes256gcm")


def starts_like_head(start: bytes) -> bool:
    """Tell whether an object begins with a head; plain bytes may happen to look the same, which their digest settles."""
    return start[:4] == _SKIPPABLE and start[8:16] == _MAGIC


def head_length(start: bytes) -> int:
    """Return how long the head is, from its first bytes."""
    return 8 + int.from_bytes(start[4:8], "little")


def read_head(raw: bytes) -> Head:
    """Read a head, or raise Corrupt if it is not one this release writes."""
    encoding = _ENCODINGS.get(raw[17])
    head = Head(encoding, raw[HEAD_START:]) if encoding else None
    expected = 32 if encoding and is_encrypted(encoding) else 0
    if head is None or head.raw != raw or len(head.body_digest) != expected:
        raise Corrupt("the stored object's head is damaged or of a newer release")
    return head


def tail(digest: bytes) -> bytes:
    """Return the tail for an object whose head and body have that digest."""
    return _SKIPPABLE + len(digest).to_bytes(4, "little") + digest


PIECE = 1 << 20
TAG = 16
_INFO = b"noetl payload object, version 1"


class Cipher:
    """Seals or opens the pieces of one body, in order.

    The key is derived from the tenant's key and the digest of the very bytes to be sealed. So a nonce, which is only
    a counter and an end mark, never meets two different bodies under one key, even when a new release of the
    compressor makes other bytes of the same content.
    """

    def __init__(self, tenant_key: bytes, body_digest: bytes, header: bytes) -> None:
        derived = HKDF(algorithm=SHA256(), length=32, salt=body_digest, info=_INFO).derive(tenant_key)
        self._cipher = AESGCM(derived)
        self._header = header
        self._count = 0

    def seal(self, piece: bytes, *, last: bool) -> bytes:
        """Encrypt the next piece."""
        return self._cipher.encrypt(self._nonce(last=last), piece, self._header)

    def open(self, piece: bytes, *, last: bool) -> bytes:
        """Decrypt and prove the next piece."""
        try:
            return self._cipher.decrypt(self._nonce(last=last), piece, self._header)
        except InvalidTag as problem:
            raise Corrupt("the stored object does not match its authentication tag") from problem

    def _nonce(self, *, last: bool) -> bytes:
        nonce = self._count.to_bytes(11, "big") + (b"\x01" if last else b"\x00")
        self._count += 1
        return nonce


def sealed_pieces(cipher: Cipher, body: IO[bytes]) -> Iterator[bytes]:
    """Yield the sealed pieces of a body; an empty body is one empty piece, so that its end is proven too."""
    piece = body.read(PIECE)
    while True:
        following = body.read(PIECE) if len(piece) == PIECE else b""
        yield cipher.seal(piece, last=not following)
        if not following:
            return
        piece = following
