"""The form of a region of shared memory: a header of 64 bytes, then one Arrow IPC stream. Any language can read it.

Header, little endian: magic `NOETLIPC` (8), version u32, length u64, zeros up to 64 so that Arrow's buffers stay aligned.
"""

from __future__ import annotations

import re
import struct
from typing import Final

MAGIC: Final = b"NOETLIPC"
VERSION: Final = 1
HEADER_BYTES: Final = 64

_HEADER: Final = struct.Struct("<8sIQ")
_NAME: Final = re.compile(r"/noetl-[0-9]+-[0-9]+-([0-9a-f]{8})\.([0-9a-f]{8})\.[0-9]+")
_PAGE: Final = 4096
_BESIDE: Final = 2 * _PAGE
"""What a region takes beside its bytes, for its names."""


def pack_header(length: int) -> bytes:
    """Return the header of a region that holds `length` bytes."""
    return _HEADER.pack(MAGIC, VERSION, length).ljust(HEADER_BYTES, b"\0")


def read_header(data: bytes) -> int | None:
    """Return the length a header tells, or None if it is no header of this version."""
    if len(data) < _HEADER.size:
        return None
    magic, version, length = _HEADER.unpack_from(data)
    return int(length) if (magic, version) == (MAGIC, VERSION) else None


def region_name(execution_id: int, frame_id: int, node: str, owner: str, number: int) -> str:
    """Return the name of a region; node, owner and number are its sequence, which never comes twice."""
    return f"/noetl-{execution_id}-{frame_id}-{node}.{owner}.{number}"


def owner_in(name: str) -> tuple[str, str] | None:
    """Return node and owner a region's name tells, or None if it is no such name."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2]) if found else None


def capacity_for(length: int) -> int:
    """Return how large a region for `length` bytes is made: a little larger, so that others of its kind fit later."""
    size = HEADER_BYTES + length
    step = max(_PAGE, 1 << max(0, size.bit_length() - 5))
    return -(-size // step) * step


def charge_for(capacity: int) -> int:
    """Return what a region takes of its node's budget."""
    return -(-capacity // _PAGE) * _PAGE + _BESIDE
