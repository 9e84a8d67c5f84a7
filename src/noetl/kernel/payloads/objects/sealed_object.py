"""A payload on its way to and from an object: plain bytes are compressed, encrypted and spooled, and read back.

Both ways work piece by piece and in a few MiB of memory. Plain bytes are handed out only after every digest matched.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import zstandard

from noetl.errors import Corrupt
from noetl.kernel.payloads.objects.format import (
    HEAD_START,
    PIECE,
    TAG,
    TAIL_BYTES,
    Cipher,
    Head,
    head_length,
    is_compressed,
    is_encrypted,
    read_head,
    sealed_pieces,
    starts_like_head,
    tail,
)
from noetl.model.payload_ref import Encoding

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


_SLICE = 1 << 14
_WIDEST_WINDOW = 1 << 27


class Opener:
    """Decodes one object into a spool. `as_is` takes the stored bytes for the plain ones, whatever they look like."""

    def __init__(self, spool: IO[bytes], key: Callable[[], bytes], limit: int, *, as_is: bool) -> None:
        self._spool = spool
        self._key = key
        self._limit = limit
        self._plain = hashlib.sha256()
        self._stored = hashlib.sha256()
        self._size = 0
        self._head: Head | None = None
        self._settled = as_is
        self._held = bytearray()
        self._sealed = bytearray()
        self._cipher: Cipher | None = None
        self._expand: zstandard.ZstdDecompressionObj | None = None

    @property
    def encoding(self) -> Encoding:
        """How the object turned out to be encoded."""
        return self._head.encoding if self._head else "identity"

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the object."""
        if self._settled and self._head is None:
            self._out(piece)
            return
        self._held += piece
        if not self._settled and not self._settle():
            return
        if self._head is None:
            self._out(bytes(self._held))
            self._held.clear()
        elif len(self._held) > TAIL_BYTES:
            body = bytes(self._held[:-TAIL_BYTES])
            del self._held[:-TAIL_BYTES]
            self._stored.update(body)
            self._body(body)

    def finish(self, sha256: str) -> None:
        """End the object; raise Corrupt unless it is whole and its plain bytes have that digest."""
        if not self._settled:
            self._settled = True
            self._out(bytes(self._held))
        elif self._head is not None:
            self._finish_body()
        if self._plain.hexdigest() != sha256:
            raise Corrupt("the stored object's plain bytes do not match their digest")

    def _settle(self) -> bool:
        """Find out whether there is a head; False asks for more bytes."""
        start = bytes(self._held[:HEAD_START])
        if len(start) < HEAD_START:
            return False
        if starts_like_head(start):
            length = head_length(start)
            if length > HEAD_START + 32:
                raise Corrupt("the stored object's head is damaged or of a newer release")
            if len(self._held) < length:
                return False
            self._head = read_head(bytes(self._held[:length]))
            del self._held[:length]
            self._stored.update(self._head.raw)
            if is_encrypted(self._head.encoding):
                self._cipher = Cipher(self._key(), self._head.body_digest, self._head.raw)
            if is_compressed(self._head.encoding):
                self._expand = zstandard.ZstdDecompressor(max_window_size=_WIDEST_WINDOW).decompressobj()
        self._settled = True
        return True

    def _finish_body(self) -> None:
        if bytes(self._held) != tail(self._stored.digest()):
            raise Corrupt("the stored object does not match the digest at its end")
        if self._cipher is not None:
            self._decompress(self._cipher.open(bytes(self._sealed), last=True))
        if self._expand is not None and (not self._expand.eof or self._expand.unused_data):
            raise Corrupt("the stored object's compressed body is cut short or has more behind it")

    def _body(self, data: bytes) -> None:
        if self._cipher is None:
            self._decompress(data)
            return
        self._sealed += data
        # One piece stays behind: whether a piece is the last is part of its proof.
        while len(self._sealed) > PIECE + TAG:
            piece = bytes(self._sealed[: PIECE + TAG])
            del self._sealed[: PIECE + TAG]
            self._decompress(self._cipher.open(piece, last=False))

    def _decompress(self, data: bytes) -> None:
        if self._expand is None:
            self._out(data)
            return
        try:
            # Small slices, so that a damaged frame cannot ask for memory without end before the limit is seen.
            for start in range(0, len(data), _SLICE):
                self._out(self._expand.decompress(data[start : start + _SLICE]))
        except zstandard.ZstdError as problem:
            raise Corrupt(f"the stored object cannot be decompressed: {problem}") from problem

    def _out(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            raise Corrupt("the stored object holds more bytes than its reference says")
        self._plain.update(data)
        self._spool.write(data)
