"""A stored object goes in piece by piece; its plain bytes come out in a spool, only after every digest holds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import IO

import zstandard

from noetl.errors import Corrupt
from noetl.model.payload_ref import Encoding
from noetl.payloads.crypt import PIECE, TAG, Cipher
from noetl.payloads.framing import (
    HEAD_START,
    TAIL_BYTES,
    Head,
    head_length,
    is_compressed,
    is_encrypted,
    read_head,
    starts_like_head,
    tail,
)

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
