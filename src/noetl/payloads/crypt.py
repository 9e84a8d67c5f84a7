"""AES-256-GCM over a long body in pieces of 1 MiB: each piece is proven, and so are their order, number and end.

Equal bodies under one key give equal ciphertext, so that content addressing still finds duplicates. The price, which
content addressing asks anyway: who sees the store can tell that two objects of a tenant are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noetl.errors import Corrupt

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
