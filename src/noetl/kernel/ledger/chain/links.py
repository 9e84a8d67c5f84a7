"""A link: what one call wrote to a shard, under a SHA-256 that covers the call and the link before it. Values only."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

LEAF_BYTES: Final = 32
NO_LINK: Final = bytes(32)
"""What the first link of a shard follows."""
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_HEAD: Final = struct.Struct(">qi")
_RUN: Final = struct.Struct(">qi")
_TIME: Final = struct.Struct(">q")


class Link(msgspec.Struct, frozen=True):
    """A row of `noetl.ledger_link`, which says how its bytes are laid out."""

    shard: int
    first_position: int
    events: int
    ingest_times: bytes
    versions: bytes
    leaves: bytes
    link: bytes

    @property
    def last_position(self) -> int:
        """The position of its last event."""
        return self.first_position + self.events - 1

    @property
    def is_whole(self) -> bool:
        """Whether its parts have the lengths that its number of events asks for."""
        return (
            self.events > 0
            and len(self.leaves) == LEAF_BYTES * self.events
            and len(self.ingest_times) in (_TIME.size, _TIME.size * self.events)
            and len(self.versions) % _RUN.size == 0
            and sum(count for _, count in _RUN.iter_unpack(self.versions)) == self.events
        )

    def after(self, previous: bytes) -> bytes:
        """Return the digest that this link must have behind the previous one."""
        head = _HEAD.pack(self.first_position, self.events)
        return sha256(b"".join((previous, head, self.ingest_times, self.versions, self.leaves))).digest()

    def leaf(self, position: int) -> bytes:
        """Return the leaf of the event at a position."""
        place = (position - self.first_position) * LEAF_BYTES
        return self.leaves[place : place + LEAF_BYTES]

    def ingest_time(self, position: int) -> datetime:
        """Return when the event at a position was taken in."""
        place = 0 if len(self.ingest_times) == _TIME.size else (position - self.first_position) * _TIME.size
        microseconds: int = _TIME.unpack_from(self.ingest_times, place)[0]
        return _EPOCH + microseconds * _MICROSECOND

    def stream_versions(self) -> Iterator[int]:
        """Give the stream version of each event, by position."""
        for first, count in _RUN.iter_unpack(self.versions):
            yield from range(first, first + count)


def made_link(
    shard: int, first_position: int, at: datetime, runs: Sequence[tuple[int, int]], leaves: bytes, previous: bytes
) -> Link:
    """Return the link of a call that wrote runs of versions at one time."""
    link = Link(
        shard=shard,
        first_position=first_position,
        events=len(leaves) // LEAF_BYTES,
        ingest_times=_TIME.pack((at - _EPOCH) // _MICROSECOND),
        versions=b"".join(_RUN.pack(*run) for run in runs),
        leaves=leaves,
        link=b"",
    )
    return msgspec.structs.replace(link, link=link.after(previous))
