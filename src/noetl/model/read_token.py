"""What a write gives its caller, so that a later read can wait until it is seen. Opaque to users."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta

from noetl.errors import InputError

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
