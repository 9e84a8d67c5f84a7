"""How an encoded object is laid out: head, body, tail. Objects that are stored as they are have neither head nor tail.

    head   zstd skippable frame: `NOETLOBJ`, version, encoding, 6 zero bytes, and for encrypted bodies a digest
    body   a zstd frame, or AES-256-GCM pieces of one, or of the plain bytes
    tail   zstd skippable frame: SHA-256 of head and body

Head and tail are frames that every zstd reader passes over, so `zstd -d` turns a compressed object into its file.
The tail makes an object provable by itself, before its key is at hand.
"""

from __future__ import annotations

from typing import Final

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
