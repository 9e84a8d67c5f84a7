"""What a stream promises. The docstrings are the specification; `noetl.testing.contracts.stream` checks every adapter.

A stream is delivery, not truth: the ledger's positions are. It may lag, repeat, or be wiped and filled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

EVENTS = "noetl_events"
"""The stream of committed events, filled by the relay."""

WRITES = "noetl_writes"
"""The stream of events that are accepted but not in the ledger yet."""


class Message(msgspec.Struct, frozen=True):
    """One thing that is published. The same `message_id` within the stream's dedup window is kept once."""

    tenant_id: str
    execution_id: int
    shard: int
    message_id: str
    body: bytes
    headers: dict[str, str] = {}


class Delivery(msgspec.Struct, frozen=True):
    """One message as a subscription gives it. Sequences ascend within a shard, in the order of publishing.

    A stream with one store counts all its messages in one row; one that reads the ledger counts per shard, and there
    the sequence is the position. Compare sequences of one shard only.
    """

    message: Message
    sequence: int
    redelivered: bool


class Published(msgspec.Struct, frozen=True):
    """Where a message stands; `duplicate` means that it stood there already."""

    sequence: int
    duplicate: bool


class Place(NamedTuple):
    """Where a message stands."""

    shard: int
    sequence: int


class StreamState(msgspec.Struct, frozen=True):
    """Identity and extent of a stream. `created` is another text whenever the stream was wiped and made anew.

    An empty stream has `messages` 0 and `first_sequence` = `last_sequence` + 1. Where sequences are counted per shard,
    `last_sequence` is the sum of the shards' last ones: it grows with every message, and nothing else is said of it.
    `bytes` is 0 where they are not counted.
    """

    name: str
    created: str
    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int


class DurableLag(msgspec.Struct, frozen=True):
    """How many messages of a shard a durable has not acknowledged, given to a reader or not."""

    durable: str
    shard: int
    messages: int


class Subscription(Protocol):
    """A durable reader: at least once, and within a shard in order as long as it acknowledges what it is given.

    Any call may raise `NotFound`, once the durable was forgotten or its stream was wiped or closed, and `LeaseLost`, once
    another subscription took the durable over; subscribe again then, or stop. `Unavailable` ends nothing: call again.
    """

    async def fetch(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Give up to `limit` messages, as soon as there are any; an empty list when none came in `wait_seconds`.

        What was given and not acknowledged is given again after the durable's `ack_wait_seconds`, or at once to
        whoever subscribes to the durable next; it is marked `redelivered` where the stream knows of the first time. A
        redelivery can follow later messages of its shard: a reader that needs the order compares sequences.
        """
        ...

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Note that these are done with: they are not given to this durable again.

        Acknowledging a message covers all earlier ones of its shard, so a reader acknowledges only what it has finished
        with all that came before. When this returns, a crash of the reader forgets none of it; a crash of the stream's
        server may, and then messages are given again, never too few. Acknowledging twice does nothing.
        """
        ...

    async def lag(self) -> int:
        """Return how many messages of the subscribed shards this durable has not acknowledged, as of a moment ago."""
        ...

    async def close(self) -> None:
        """Stop reading. The durable stays, with what was acknowledged; what was not is given to its next reader."""
        ...


class EventStream(Protocol):
    """A named stream of messages that many durables read, each at its own pace.

    Every call raises `Unavailable` when the server is away: the adapter connects again by itself, and the same call
    may be made again. `Unsupported` means that the server or the stream cannot do what is needed.
    """

    name: str

    async def open(self) -> StreamState:
        """Connect, make the stream if it is absent, and check its configuration if it is there.

        A stream that is configured otherwise: `Unsupported`, naming the field, what was found and what is wanted.
        """
        ...

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        """Store the messages in the order given and return where each stands, once all are acknowledged.

        A message whose id stands already is not stored again and is answered with `duplicate`. When this raises
        `Unavailable`, any part may be stored; publish all of it again, and what stands is recognised by its ids. When it
        raises `NotFound`, the stream is gone with all it held: open it, which makes it anew, and fill it again.
        """
        ...

    async def subscribe(
        self,
        durable: str,
        shards: Sequence[int] | None = None,
        *,
        from_sequence: int | None = None,
        ack_wait_seconds: float = 30.0,
    ) -> Subscription:
        """Read as a durable, made if it is new: from `from_sequence` on (included), or from the stream's beginning.

        A durable that exists goes on behind what it has acknowledged; `from_sequence` says nothing to it. Its shards
        (None: all) and its ack wait become those given now; each shard has its own place, also while it is not read.
        A durable is for one reader at a time: a second subscription takes over and is given at once what the first
        was given and did not acknowledge. The names of durables are letters, digits, `-` and `_`.
        """
        ...

    async def state(self) -> StreamState:
        """Return the stream's identity and extent now; `NotFound` when it is gone."""
        ...

    async def ids_at(self, places: Sequence[Place]) -> dict[Place, str]:
        """Return the ids of the messages that stand at these places now; a place without a message is left out.

        A sequence is given out again by a stream that lost its last messages: only the id tells what stands there.
        `NotFound` when the stream is gone.
        """
        ...

    async def ends(self) -> dict[Place, str]:
        """Return place and id of the last message of each shard that has any; `NotFound` when the stream is gone."""
        ...

    async def lags(self) -> list[DurableLag]:
        """Return how far every durable is behind in each shard it ever read, by name and shard; takes nothing over.

        A shard that its reader let go of keeps its place, so its lag grows: who looks must know which shards are read.
        What was published or acknowledged this moment may be counted a moment later.
        `NotFound` when the stream is gone.
        """
        ...

    async def came_at(self, shard: int, after: int) -> datetime | None:
        """Return when the first message of a shard behind a sequence came to the stream; None where there is none.

        `NotFound` when the stream is gone.
        """
        ...

    async def readers(self) -> set[str]:
        """Return the durables at which a reader waits for messages now, as far as the stream can tell.

        One that has messages in hand may not wait for more this moment, and one that died may be told of for a few
        seconds. `NotFound` when the stream is gone.
        """
        ...

    async def forget(self, durable: str) -> None:
        """Remove a durable with what it acknowledged, which ends its subscription; one that is not there is no error."""
        ...

    async def trim(self, upto: int) -> None:
        """Let go of the messages up to a sequence, which nobody needs any more; a stream that is the ledger keeps them."""
        ...

    async def wipe(self) -> None:
        """Remove all messages and durables: the stream is made anew, and open subscriptions to it end."""
        ...

    async def close(self) -> None:
        """Let go of the server. Subscriptions of this object end; what is stored stays."""
        ...
