"""What a server and its DuckDB process say to each other: length-prefixed msgpack over a socket pair."""

from __future__ import annotations

import struct
from typing import Final, Literal

import msgspec

from noetl.model.dataset import Field

Trouble = Literal["query", "interrupted", "memory", "files", "size", "proof"]


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that a query reads under a name of ours: those of exactly these files, with exactly these columns."""

    name: str
    columns: tuple[Field, ...]
    paths: tuple[str, ...]
    """Relative to the lake."""
    uniform: bool


class Open(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What the process works with; the first message."""

    lake_root: str
    lake_options: dict[str, str]
    scratch: str
    """A directory of this process alone."""
    memory: str
    threads: int
    spill: str


class Ask(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Run one query."""

    relations: tuple[Relation, ...]
    sql: str
    most_bytes: int


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """Stop the query that runs."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The process has started."""


class Rows(msgspec.Struct, frozen=True, tag=True):
    """The answer as an Arrow stream."""

    stream: bytes


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why there is no answer."""

    trouble: Trouble
    message: str


ToDuck = Open | Ask | Interrupt
FromDuck = Ready | Rows | Failed

PREFIX: Final = struct.Struct("!Q")
"""The length of a message stands before it."""
_to_duck: Final = msgspec.msgpack.Decoder(ToDuck)
_from_duck: Final = msgspec.msgpack.Decoder(FromDuck)


def encode(message: ToDuck | FromDuck) -> bytes:
    """Return a message with its length before it."""
    body = msgspec.msgpack.encode(message)
    return PREFIX.pack(len(body)) + body


def to_duck(body: bytes) -> ToDuck:
    """Read what a server said."""
    message: ToDuck = _to_duck.decode(body)
    return message


def from_duck(body: bytes) -> FromDuck:
    """Read what a DuckDB process said."""
    message: FromDuck = _from_duck.decode(body)
    return message
