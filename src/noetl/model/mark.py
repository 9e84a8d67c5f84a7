"""How far the ledger has come: a mark has one position per shard, a read token is what a write returns to its
caller.

Both are printed as short checked tokens. Marks are ordered only in part: of two marks each may be ahead in another
shard. A mark does not say when it was taken. With a read token, a later read can wait until it sees the write.
"""

from __future__ import annotations

import base64
import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from blake3 import blake3
from msgspec import Meta

from noetl.errors import InputError
from noetl.model.stream import SHARD_COUNT

MAX_POSITION: Final = 2**63 - 1
MAX_SHARDS: Final = 1024

_PREFIX: Final = "m1."
_CHECK_BYTES: Final = 2
_BODY: Final = re.compile(r"[A-Za-z0-9_-]{1,16384}")  # bounded: longer than any mark of MAX_SHARDS


@dataclass(frozen=True, slots=True)
class Mark:
    """The position reached in each shard; 0 means nothing yet."""

    positions: tuple[int, ...]

    def __init__(self, positions: Sequence[int]) -> None:
        object.__setattr__(self, "positions", tuple(positions))
        if not 1 <= len(self.positions) <= MAX_SHARDS:
            raise InputError(f"a mark has between 1 and {MAX_SHARDS} shards, not {len(self.positions)}")
        for shard, position in enumerate(self.positions):
            if not 0 <= position <= MAX_POSITION:
                raise InputError(f"position {position} of shard {shard} is not between 0 and 2^63 - 1")

    @classmethod
    def zero(cls, count: int = SHARD_COUNT) -> Mark:
        """Return the mark before the first event."""
        return cls((0,) * count)

    @classmethod
    def parse(cls, token: str) -> Mark:
        """Read a mark from its token; a mistyped token is an error, never another mark."""
        if not token.startswith(_PREFIX):
            raise _invalid(token, f"a mark starts with {_PREFIX!r}")
        text = token.removeprefix(_PREFIX)
        # One character more than a multiple of four holds no whole byte; the decoder would fail less clearly.
        if not _BODY.fullmatch(text) or len(text) % 4 == 1:
            raise _invalid(token, "characters are missing or do not belong there")
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not body or body[-1] & 0x80 or _check(body) != check:
            raise _invalid(token, "its check does not match, so it was cut off or mistyped")
        mark = cls(list(_decode(body)))
        if mark.token() != token:
            raise _invalid(token, "it is not written the one way this mark is written")
        return mark

    def with_position(self, shard: int, position: int) -> Mark:
        """Return the mark with one shard set to a position."""
        if not 0 <= shard < len(self.positions):
            raise InputError(f"there is no shard {shard}; this mark has shards 0 to {len(self.positions) - 1}")
        return Mark((*self.positions[:shard], position, *self.positions[shard + 1 :]))

    def covers(self, other: Mark) -> bool:
        """Tell whether everything up to the other mark is also before this one."""
        return all(mine >= theirs for mine, theirs in self._pairs(other))

    def merge(self, other: Mark) -> Mark:
        """Return the earliest mark that covers both."""
        return Mark([max(pair) for pair in self._pairs(other)])

    def token(self) -> str:
        """Return the short text that stands for this mark on a command line or in a URL."""
        body = b"".join(map(_varint, self.positions))
        return _PREFIX + urlsafe_b64encode(body + _check(body)).rstrip(b"=").decode()

    def __str__(self) -> str:
        return self.token()

    def _pairs(self, other: Mark) -> Iterator[tuple[int, int]]:
        if len(self.positions) != len(other.positions):
            raise InputError(
                f"marks of {len(self.positions)} and {len(other.positions)} shards do not belong to the same ledger"
            )
        return zip(self.positions, other.positions, strict=True)


def _invalid(token: str, why: str) -> InputError:
    shown = token if len(token) <= 120 else token[:117] + "..."
    return InputError(f"{shown!r} is not a mark: {why}", hint="copy the whole token as it was printed")


def _check(body: bytes) -> bytes:
    return blake3(_PREFIX.encode() + body).digest(length=_CHECK_BYTES)


def _varint(number: int) -> bytes:
    """Write seven bits a byte, lowest first, with the high bit set on all but the last (LEB128)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _decode(body: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


_EVENT = "nrt1."
_VERSION = "nrt2."

# A caller may send anything: what the database cannot hold must not reach the look that many callers share.
_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_StreamId = Annotated[str, Meta(max_length=512, pattern=r"^[^\x00]*$")]


class ReadToken(msgspec.Struct, frozen=True, array_like=True):
    """Which event a read must see; for one that went through the stream, also where it stands there."""

    execution_id: _Id
    event_id: _Id
    shard: int
    sequence: int | None = None
    stream_created: str | None = None

    def __str__(self) -> str:
        return _EVENT + _text(self)


class VersionToken(msgspec.Struct, frozen=True, array_like=True):
    """Up to which version of a stream a read must see what was decided, with whatever was recorded together with it."""

    execution_id: _Id
    """Whose events they are; for a stream under no execution, the organization's root."""
    stream_id: _StreamId
    version: _Id

    def __str__(self) -> str:
        return _VERSION + _text(self)


def execution_token(execution_id: int, version: int) -> VersionToken:
    """Return what stands for an execution as it is at a version of its own stream."""
    return VersionToken(execution_id, f"execution/{execution_id}", version)


def parse_read_token(text: str) -> ReadToken | VersionToken:
    """Read a token, or raise InputError."""
    try:
        if text.startswith(_VERSION):
            return msgspec.msgpack.decode(_packed(text.removeprefix(_VERSION)), type=VersionToken)
        if text.startswith(_EVENT):
            return msgspec.msgpack.decode(_packed(text.removeprefix(_EVENT)), type=ReadToken)
        raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InputError("this is not a read token", hint="send what a write returned as `read_token`") from None


def _text(token: ReadToken | VersionToken) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(token)).decode().rstrip("=")


def _packed(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
