"""What a write gives its caller, so that a later read can wait until it is seen. Opaque to users."""

from __future__ import annotations

import base64
import binascii

import msgspec

from noetl.errors import InputError

_PREFIX = "nrt1."


class ReadToken(msgspec.Struct, frozen=True, array_like=True):
    """Which event a read must see; for one that went through the stream, also where it stands there."""

    execution_id: int
    event_id: int
    shard: int
    sequence: int | None = None
    stream_created: str | None = None

    def __str__(self) -> str:
        packed = msgspec.msgpack.encode(self)
        return _PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def parse_read_token(text: str) -> ReadToken:
    """Read a token, or raise InputError."""
    try:
        if not text.startswith(_PREFIX):
            raise ValueError
        packed = text.removeprefix(_PREFIX)
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), type=ReadToken)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InputError("this is not a read token", hint="send what a write returned as `read_token`") from None
