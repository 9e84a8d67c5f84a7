"""Plain bytes go in piece by piece; their digest and the spooled form to be stored come out. Never more than a few MiB of memory."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import IO

import zstandard

from noetl.model.payload_ref import Encoding
from noetl.payloads.crypt import Cipher, sealed_pieces
from noetl.payloads.framing import Head, is_compressed, is_encrypted, tail

BLOCK = 1 << 20
"""Input is cut into blocks of this size, so that equal content gives equal bytes however it arrives."""

_LEVEL = 3


def new_spool(directory: Path | None) -> IO[bytes]:
    """Return a place for bytes: memory up to 1 MiB, then an unnamed file, which no crash leaves behind."""
    return tempfile.SpooledTemporaryFile(max_size=BLOCK, dir=None if directory is None else str(directory))


class Sealed:
    """A payload ready to be stored: its digests and sizes, and a spool with the stored form."""

    def __init__(self, spool: IO[bytes], encoding: Encoding, plain: tuple[str, int], stored_sha256: str) -> None:
        self.spool = spool
        self.encoding = encoding
        self.sha256, self.bytes = plain
        self.stored_sha256 = stored_sha256
        self.stored_bytes = spool.tell()


class Sealer:
    """Hashes, compresses and encrypts one payload on its way to the spool."""

    def __init__(self, encoding: Encoding, directory: Path | None) -> None:
        self._encoding = encoding
        self._directory = directory
        self._plain = hashlib.sha256()
        self.size = 0
        self._pending = bytearray()
        self._body = hashlib.sha256()
        self._spool = new_spool(directory)
        self._compress = (
            zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
            if is_compressed(encoding)
            else None
        )
        if encoding == "zstd":
            self._emit(Head(encoding).raw)

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        self._plain.update(data)
        self.size += len(data)
        if self._compress is None:
            self._emit(data)
            return
        if not self._pending and len(data) == BLOCK:
            self._emit(self._compress.compress(data))
            return
        self._pending += data
        while len(self._pending) >= BLOCK:
            block = bytes(self._pending[:BLOCK])
            del self._pending[:BLOCK]
            self._emit(self._compress.compress(block))

    def finish(self, tenant_key: bytes | None) -> Sealed:
        """End the payload; encryption happens here, since its key depends on the digest of the whole body."""
        if self._compress is not None:
            self._emit(self._compress.compress(bytes(self._pending)) + self._compress.flush())
        plain = (self._plain.hexdigest(), self.size)
        if is_encrypted(self._encoding):
            assert tenant_key is not None
            self._encrypt(tenant_key)
        if self._encoding == "identity":
            return Sealed(self._spool, self._encoding, plain, plain[0])
        self._emit(tail(self._body.digest()))
        return Sealed(self._spool, self._encoding, plain, self._body.hexdigest())

    def close(self) -> None:
        """Give the spool up."""
        self._spool.close()

    def _encrypt(self, tenant_key: bytes) -> None:
        head = Head(self._encoding, self._body.digest())
        cipher = Cipher(tenant_key, head.body_digest, head.raw)
        with self._spool as body:
            body.seek(0)
            self._spool = new_spool(self._directory)
            self._body = hashlib.sha256()
            self._emit(head.raw)
            for piece in sealed_pieces(cipher, body):
                self._emit(piece)

    def _emit(self, data: bytes) -> None:
        if self._encoding != "identity":
            self._body.update(data)
        self._spool.write(data)
